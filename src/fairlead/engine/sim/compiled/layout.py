"""The fields of a compiled run: what each array holds, by number.

Upper-case names are positions in the table of addresses (`views`). Those of `COUNT` and `CLOCK` are positions inside
these two arrays of single numbers.
"""

from itertools import count as _numbers

_f = _numbers()

# --- single numbers
COUNT = next(_f)  # whole numbers, by the positions below
CLOCK = next(_f)  # real numbers, by the positions below

# --- what is declared: nodes, devices, functions, shapes, workflows
NODE_TOTAL = next(_f)  # thousandths of a vCPU
NODE_MEMORY = next(_f)  # MiB
NODE_KIND = next(_f)
NODE_DEVICE = next(_f)  # first device of each node, and one more
DEVICE_TOTAL = next(_f)  # thousandths of a vGPU
DEVICE_MEMORY = next(_f)  # MiB
FUNCTION_CLASS = next(_f)  # keep-alive class; -1 for ever
FUNCTION_SHAPE = next(_f)  # the shape that simple rules use
FUNCTION_FIRST = next(_f)  # first shape of each function in SHAPES, and one more
SHAPES = next(_f)  # shapes by function, in the order of its profile
SIZE_FIRST = next(_f)  # first batch size of each function in SIZE_SHAPE, and one more
SIZE_BATCH = next(_f)  # batch sizes of each function, ascending
SIZE_SHAPE = next(_f)  # the cheapest shape of each
BATCH_FIRST = next(_f)  # by shape: its first place in BATCH_SHAPE; both empty where there are no replicas
BATCH_SHAPE = next(_f)  # by (shape, batch size from 1 on): the shape of the same size, -1 if there is none
FLAVOUR_FUNCTION = next(_f)
FLAVOUR_VGPUS = next(_f)
FLAVOUR_MEMORY = next(_f)
FLAVOUR_DEVICE_MEMORY = next(_f)
FLAVOUR_KEEPS_SLICE = next(_f)
FLAVOUR_WEIGHTLESS = next(_f)
SHAPE_FUNCTION = next(_f)
SHAPE_FLAVOUR = next(_f)
SHAPE_VCPUS = next(_f)  # thousandths
SHAPE_BATCH = next(_f)
SHAPE_BLOCKED = next(_f)  # version of the placement index at which nothing fitted
SHAPE_USD = next(_f)  # per second
SHAPE_BASE = next(_f)  # by (shape, kind): undisturbed time of a run, infinite where there is none
SHAPE_DECLARED = next(_f)  # by (shape, kind): what is believed at first
SHAPE_CORRECTION = next(_f)  # by (shape, kind): observed over declared
SHAPE_SEEN = next(_f)  # by (shape, kind): how many runs were observed, up to the memory of the estimate
SHAPE_SHARE = next(_f)  # by shape: vCPUs (or vGPUs) as the interference model takes them
FUNCTION_COLD = next(_f)  # by (function, kind): seconds
FUNCTION_SENSITIVITY = next(_f)
FUNCTION_PRESSURE = next(_f)
FUNCTION_OUTPUT = next(_f)  # MB
CLASS_KEEP = next(_f)  # seconds
WORKFLOW_FIRST = next(_f)  # first stage of each workflow, and one more
WORKFLOW_ENTRY = next(_f)  # first of its entry stages in ENTRIES, and one more
ENTRIES = next(_f)
WORKFLOW_DRAWS = next(_f)  # how many random factors a request brings
WORKFLOW_SLO = next(_f)  # seconds
STAGE_FUNCTION = next(_f)
STAGE_QUEUE = next(_f)
STAGE_FAN_IN = next(_f)
STAGE_THEN = next(_f)  # first of its successors in SUCCESSORS, and one more
SUCCESSORS = next(_f)  # as local stage numbers
STAGE_BEFORE = next(_f)
PREDECESSORS = next(_f)
STAGE_SPREAD = next(_f)  # which of the request's factors spreads its time; -1 for none
STAGE_NOISE = next(_f)
STAGE_REST = next(_f)  # seconds that the stages after it take at best
FUNCTION_QUEUE = next(_f)  # first queue of a function; -1 without
QUEUE_SIBLING = next(_f)  # the next one of the same function

# --- nodes and devices now
NODE_FREE = next(_f)
NODE_HELD = next(_f)
NODE_MEMORY_FREE = next(_f)
NODE_MEMORY_HELD = next(_f)
NODE_LEVEL = next(_f)
NODE_GPU_LEVEL = next(_f)
NODE_OLDEST = next(_f)  # least recently used idle instance
NODE_NEWEST = next(_f)
DEVICE_FREE = next(_f)
DEVICE_HELD = next(_f)
DEVICE_MEMORY_FREE = next(_f)
DEVICE_MEMORY_HELD = next(_f)
CPU_MASKS = next(_f)  # by (level, word): bits over nodes
CPU_WORDS = next(_f)  # by (level, word): which words of the masks are not 0
GPU_MASKS = next(_f)
GPU_WORDS = next(_f)

# --- idle instances by flavour
WARM_MASKS = next(_f)  # by (flavour, word): bits over nodes
WARM_NODES = next(_f)  # by flavour: on how many nodes
IDLE_LAST = next(_f)  # by (flavour, node): the most recently used one, plus 1
IDLE_COUNT = next(_f)  # by (function, node), for user placements; else empty
CLASS_FIRST = next(_f)  # by keep-alive class: the next to expire
CLASS_LAST = next(_f)
CLASS_ORDER = next(_f)  # classes in the order in which their functions were first looked at
CLASS_KNOWN = next(_f)

# --- instances, by slot
I_ID = next(_f)
I_FLAVOUR = next(_f)
I_SIZE = next(_f)  # the shape it was made in, or resized to
I_SHAPE = next(_f)  # the shape of its batch
I_NODE = next(_f)
I_DEVICE = next(_f)  # over all nodes; -1 without
I_VCPUS = next(_f)
I_STATE = next(_f)  # bits below
I_BATCH = next(_f)  # -1 without
I_FIRST = next(_f)  # first task of its batch
I_TASKS = next(_f)  # how many
I_BEFORE = next(_f)  # idle on the same node in the same flavour, less recently used
I_AFTER = next(_f)
I_OLDER = next(_f)  # idle on the same node
I_NEWER = next(_f)
I_SOONER = next(_f)  # to expire in the same class
I_LATER = next(_f)
I_NEXT = next(_f)  # free slots; replicas of one set
I_STANDS_FOR = next(_f)  # of a starting replica: the slot of the one that it replaces, else -1
I_STANDS_FOR_ID = next(_f)
I_STARTED = next(_f)
I_READY = next(_f)
I_START = next(_f)
I_COLD = next(_f)
I_MB = next(_f)  # its batch's input that lies on other nodes
I_EXPIRES = next(_f)
I_BEGAN = next(_f)  # where there is interference: when its batch began to work
I_DUE = next(_f)  # there: its clock's reading at which the batch ends
I_CLOCK_NEXT = next(_f)  # running on the same clock, soonest first
I_SINCE = next(_f)  # when it turned idle
I_VALUE = next(_f)  # its worth to a keep-alive rule

# --- requests, by slot, and their tasks, by slot x stages
R_ID = next(_f)
R_WORKFLOW = next(_f)
R_LEFT = next(_f)  # stages not yet done
R_OPEN = next(_f)
R_RUNNING = next(_f)  # its tasks that run
R_NEXT = next(_f)  # free slots
R_ARRIVAL = next(_f)
R_COST = next(_f)
R_DRAWS = next(_f)
T_ID = next(_f)
T_STATE = next(_f)
T_STAGE = next(_f)  # over all workflows
T_LEFT = next(_f)  # predecessors not yet done
T_NODE = next(_f)  # where its output lies
T_WITH = next(_f)  # the next one of its batch
T_BEFORE = next(_f)  # in the line over all
T_AFTER = next(_f)
T_QUEUE_BEFORE = next(_f)  # in the line of its (workflow, function)
T_QUEUE_AFTER = next(_f)
T_FUNCTION_BEFORE = next(_f)  # in the line of its function
T_FUNCTION_AFTER = next(_f)
T_READY = next(_f)
T_CHILD = next(_f)  # in the heap by deadline
T_SIBLING = next(_f)
T_PARENT = next(_f)
LINE = next(_f)  # first and last of the line over all
QUEUE_FIRST = next(_f)
QUEUE_LAST = next(_f)
QUEUE_SIZE = next(_f)
QUEUE_MASK = next(_f)  # bits over queues: those in which something waits that might start
FUNCTION_FIRST_WAITING = next(_f)
FUNCTION_LAST_WAITING = next(_f)
FUNCTION_WAITING = next(_f)  # how many wait
FUNCTION_URGENT = next(_f)  # most urgent waiting task
FUNCTION_CLOSED = next(_f)  # instant (by number) at which it was found full or held
FUNCTION_WAKE = next(_f)  # wake that was asked for last

# --- events
EVENT_AT = next(_f)
EVENT_ORDER = next(_f)
EVENT_WHAT = next(_f)
READY_NOW = next(_f)  # instances that become ready at this instant
FINISHED_NOW = next(_f)
ARRIVAL_AT = next(_f)
ARRIVAL_WORKFLOW = next(_f)
ARRIVAL_DRAWS = next(_f)
PRESSURE_NODE = next(_f)
PRESSURE = next(_f)
SEEN_FREE = next(_f)  # what a placement in Python is shown: a copy of its own
SEEN_WARM = next(_f)
FRESH = next(_f)  # request slots that arrived at this instant

# --- interference: clocks by (node, key)
SHAPE_CLOCK = next(_f)  # key of a shape: shapes of one function and share have one clock
CLOCK_RATE = next(_f)
CLOCK_VIRTUAL = next(_f)
CLOCK_LOAD = next(_f)  # what one batch on it adds to its node's load
KEY_FUNCTION = next(_f)
CLOCK_FIRST = next(_f)  # the batch on it that ends next
CLOCK_NEXT = next(_f)  # clocks of one node on which anything runs, in the order of their numbers
CLOCK_NUMBER = next(_f)  # in the order in which a node first needed them, from 1
NODE_CLOCK = next(_f)  # the first of them
NODE_CLOCKS = next(_f)  # how many were made
NODE_SHARED_AT = next(_f)  # when its clocks were last advanced
NODE_LOAD = next(_f)
NODE_PRESSURE = next(_f)
NODE_VERSION = next(_f)
NODE_RUNS = next(_f)
NODE_CORES = next(_f)  # of an overcommitted node: thousandths of vCPUs that runs share; else 0
NODE_BUSY = next(_f)  # thousandths of vCPUs of all that runs

# --- scaling, by function
SCALED = next(_f)  # 1 while it runs only on replicas
TARGET = next(_f)
SET_SIZE = next(_f)  # shape of its replicas
SET_ORDER = next(_f)  # scaled functions, in the order in which they were first scaled
SET_FIRST = next(_f)  # its replicas, oldest first
SET_LAST = next(_f)
SET_COUNT = next(_f)
SET_IS_SHORT = next(_f)  # 1 if the last replica that was wanted found no room
FREE_FIRST = next(_f)  # its free replicas, the one that rests longest first
FREE_LAST = next(_f)
IDLE_REPLICAS = next(_f)  # by (function, node): how many are free; empty without a scaler
I_SPARE = next(_f)  # of instances: so that one takes up whole cache lines

# --- built-in scalers and keep-alive rules: their memories
SCALER_INTS = next(_f)
SCALER_REALS = next(_f)
KEEP_INTS = next(_f)
KEEP_REALS = next(_f)
EXPIRED_NOW = next(_f)  # instances that such a rule lets go at this instant
PREWARM_NOW = next(_f)  # functions of which it wants an instance at this instant

# --- records
INVOCATION_INTS = next(_f)
INVOCATION_REALS = next(_f)
REQUEST_INTS = next(_f)
REQUEST_REALS = next(_f)
INSTANCE_INTS = next(_f)
INSTANCE_REALS = next(_f)
TALLY = next(_f)  # by function: what happened, in whole numbers
TALLY_REALS = next(_f)
RECORD_WINDOWS = next(_f)  # of arrivals whose requests are recorded: from, until

FIELDS = next(_f)

# --- fields that lie together, one record per slot: what is used together is near together, in the order of use
_INSTANCE = (
    *(I_STATE, I_FLAVOUR, I_NODE, I_VCPUS, I_BEFORE, I_AFTER, I_SOONER, I_LATER),  # a cache line each
    *(I_BATCH, I_FIRST, I_TASKS, I_SHAPE, I_START, I_COLD, I_MB, I_EXPIRES),
    *(I_DEVICE, I_SINCE, I_OLDER, I_NEWER, I_ID, I_SIZE, I_NEXT, I_READY),
    *(I_STARTED, I_STANDS_FOR, I_STANDS_FOR_ID, I_BEGAN, I_DUE, I_CLOCK_NEXT, I_SPARE, I_VALUE),
)
_REQUEST = (R_ID, R_WORKFLOW, R_LEFT, R_OPEN, R_RUNNING, R_NEXT, R_ARRIVAL, R_COST)
_TASK = (
    *(T_STAGE, T_STATE, T_WITH, T_LEFT, T_AFTER, T_BEFORE, T_ID, T_READY),
    *(T_NODE, T_QUEUE_BEFORE, T_QUEUE_AFTER, T_FUNCTION_BEFORE, T_FUNCTION_AFTER, T_CHILD, T_SIBLING, T_PARENT),
)
_EVENT = (EVENT_AT, EVENT_ORDER, EVENT_WHAT)
_FUNCTION = (FUNCTION_CLASS, FUNCTION_SHAPE, FUNCTION_WAITING, SCALED)
_SHAPE = (SHAPE_FLAVOUR, SHAPE_VCPUS, SHAPE_BLOCKED, SHAPE_USD)
_FLAVOUR = (
    *(FLAVOUR_FUNCTION, FLAVOUR_VGPUS, FLAVOUR_MEMORY, FLAVOUR_DEVICE_MEMORY, FLAVOUR_KEEPS_SLICE),
    *(FLAVOUR_WEIGHTLESS, WARM_NODES),
)
RECORDS_OF = (_INSTANCE, _REQUEST, _TASK, _EVENT, _FUNCTION, _SHAPE, _FLAVOUR)
COLUMN = {field: (group, column) for group in RECORDS_OF for column, field in enumerate(group)}
"""Of each field that lies in records: the fields of its record, and its own place among them."""
REALS = frozenset(
    {
        I_STARTED,
        I_READY,
        I_START,
        I_COLD,
        I_MB,
        I_EXPIRES,
        I_BEGAN,
        I_DUE,
        I_SINCE,
        I_VALUE,
        R_ARRIVAL,
        R_COST,
        T_READY,
        EVENT_AT,
        SHAPE_USD,
    }
)
"""Of those, the real numbers."""

# --- positions in COUNT
_c = _numbers()
NODES = next(_c)
WORDS = next(_c)  # of 64 nodes
SUMMARIES = next(_c)  # words over words
KINDS = next(_c)
FUNCTIONS = next(_c)
FLAVOURS = next(_c)
STAGE_BITS = next(_c)  # a task is its request's slot shifted by so many bits, plus its stage's place in the workflow
DRAWS = next(_c)  # most random factors of a workflow
QUEUES = next(_c)
CLASSES = next(_c)
CPU_UNIT = next(_c)
GPU_UNIT = next(_c)
CPU_FACTOR = next(_c)  # free x factor >> LEVEL_BITS is free // unit, without a division
GPU_FACTOR = next(_c)
CPU_LEVELS = next(_c)
GPU_LEVELS = next(_c)
CPU_TOP = next(_c)
GPU_TOP = next(_c)
VERSION = next(_c)
CLASSES_KNOWN = next(_c)
INSTANCE_SLOTS = next(_c)
FREE_INSTANCE = next(_c)
FREE_INSTANCES = next(_c)
REQUEST_SLOTS = next(_c)
FREE_REQUEST = next(_c)
NEXT_INSTANCE = next(_c)
NEXT_BATCH = next(_c)
NEXT_REQUEST = next(_c)
NEXT_INVOCATION = next(_c)
SEQUENCE = next(_c)
EVENTS = next(_c)
ARRIVAL = next(_c)
ARRIVALS = next(_c)
ARRIVAL_DRAW = next(_c)
MORE_ARRIVALS = next(_c)
RUNNING = next(_c)
OPEN = next(_c)
WAITING = next(_c)
IDLE_INSTANTS = next(_c)
INSTANTS = next(_c)
FAULTS = next(_c)
PHASE = next(_c)
READY_COUNT = next(_c)
FINISHED_COUNT = next(_c)
READY_DONE = next(_c)
FINISHED_DONE = next(_c)
FRESH_COUNT = next(_c)
WAKE_DUE = next(_c)
CONTROL_DUE = next(_c)
SCALER_AT = next(_c)
IS_SHORT = next(_c)
SETS_CHANGED = next(_c)  # some set of replicas did since all were last brought to what is wanted
SHORT_AT = next(_c)  # version of the placement index when they were
SETS = next(_c)
IN_USE = next(_c)  # some function is scaled
STALE = next(_c)
RULE = next(_c)
BATCHING = next(_c)
QUEUE_LIMIT = next(_c)  # -1 without
DROP_LATE = next(_c)
LEARNS = next(_c)
SCALER = next(_c)
KEEP_RULE = next(_c)
IS_SHARED = next(_c)  # runs slow each other down
MOVES_DATA = next(_c)
BILLS_COLD = next(_c)
CLOCK_KEYS = next(_c)
MOST_TASKS = next(_c)  # largest batch
HAS_LINE = next(_c)
HAS_QUEUES = next(_c)
HAS_FUNCTION_LINES = next(_c)
HAS_DEADLINES = next(_c)
COUNTS_IDLE = next(_c)
RECORDS = next(_c)  # which tables are kept, as bits
TALLIES = next(_c)  # whether what happens is counted by function
INVOCATION_ROOM = next(_c)  # rows that there is room for
REQUEST_ROOM = next(_c)
INSTANCE_ROOM = next(_c)
EVENT_ROOM = next(_c)
INVOCATION_ROWS = next(_c)
REQUEST_ROWS = next(_c)
INSTANCE_ROWS = next(_c)
NEEDED = next(_c)  # what has no room left
ASKED_TASK = next(_c)  # a decision from outside: what it is about
ANSWER = next(_c)
HAS_ANSWER = next(_c)
BAD_TASK = next(_c)
BAD_VALUE = next(_c)
SEED = next(_c)
COMPLETED = next(_c)
REJECTED = next(_c)
DROPPED = next(_c)
COLD_STARTS = next(_c)
INVOCATIONS = next(_c)
SAMPLING = next(_c)  # which requests are recorded: all, every so many, those of some windows
SAMPLE_EVERY = next(_c)
EXPIRED_COUNT = next(_c)
PREWARM_COUNT = next(_c)
PREWARM_DONE = next(_c)
PREWARMED = next(_c)
EVICTIONS = next(_c)
COUNTS = next(_c)

# --- positions in CLOCK
_x = _numbers()
NOW = next(_x)
SOONEST = next(_x)  # no expiry is due before
HEADROOM = next(_x)
MB_PER_S = next(_x)
BATCH_WAIT = next(_x)
CONTROL_PERIOD = next(_x)
STOP_AT = next(_x)  # an environment's step ends here
REWARD = next(_x)
LATENCY_SUM = next(_x)
COST_SUM = next(_x)
IDLE_MB_S = next(_x)  # memory x time of idle instances
LIFE_MB_S = next(_x)  # memory x time of instances that have ended
CLOCKS = next(_x)

# --- what an instance is, as bits
IDLE, READY, REPLICA, DRAINING, ON_DEMAND, IS_COLD, REPLACED = 1, 2, 4, 8, 16, 32, 64

# --- kinds of events
FINISH, BECOME_READY, NODE_ENDS, BEGIN, WAKE, CONTROL, PRESS, EXPIRE, PREWARM = range(9)
KIND_BITS, INDEX_BITS = 4, 28  # of what happens: kind, then whose, then the low bits of who it was then

# --- phases of an instant
GATHER, APPLY, FIRE, SCALE, DISPATCH = range(5)

# --- why the loop stopped
DONE, NEEDS_ARRIVALS, NEEDS_ROOM, NEEDS_DECISION, BAD_DECISION, STOPPED, NEEDS_SCALING, STUCK = range(8)

# --- rules
FIFO, LEAST_LOADED, EARLIEST_DEADLINE, USER, CALLED, OUTSIDE = range(6)
NO_BATCHING, FULL = range(2)

# --- keep-alive rules: a time per function, by its idle times, by worth
BY_TIME, BY_HISTOGRAM, BY_WORTH = range(3)

# --- which requests are recorded
EVERY_ONE, EVERY_SO_MANY, IN_WINDOWS = range(3)

# --- what a placement answers instead of a node
WAIT, REFUSE, RAISED = -1, -2, -(1 << 62)

# --- tables to keep, as bits
KEEP_REQUESTS, KEEP_INVOCATIONS, KEEP_INSTANCES, KEEP_TALLY = 1, 2, 4, 8
INVOCATION_INT_COLUMNS, INVOCATION_REAL_COLUMNS = 4, 5
REQUEST_INT_COLUMNS, REQUEST_REAL_COLUMNS = 3, 3
INSTANCE_INT_COLUMNS, INSTANCE_REAL_COLUMNS = 5, 3

# --- how requests end, and why
COMPLETED_, REJECTED_, DROPPED_, UNFINISHED_ = range(4)
NO_REASON, LIMIT_REASON, LATE_REASON, POLICY_REASON = range(4)
# --- how instances end
LIVING, EXPIRED, EVICTED, RETIRED, DRAINED = range(5)

INFINITE = 1 << 60
LEVEL_BITS = 40
