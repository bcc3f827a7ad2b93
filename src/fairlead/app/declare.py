"""An app: functions, and the workflows made of them, declared in a Python file."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, overload

import msgspec

from fairlead.app.compile import Compiled, compile_body
from fairlead.app.compose import Body, body_of
from fairlead.app.evaluate import answer
from fairlead.app.function import (
    MAX_CONFIGURATIONS,
    MISSING,
    AppFunction,
    FusedFunction,
    batch_sizes,
    cache_bounds,
    device_names,
    number,
    numbers,
    size_bytes,
    whole,
)
from fairlead.app.fusion import all_chains, fuse_workflow, split_parts, unfused_workflow, with_copies
from fairlead.app.manifest import FunctionSpec, Manifest, NodeSpec, WorkflowSpec
from fairlead.app.names import checked_name
from fairlead.app.options import Compete, Fuse, chains_of, copies_of
from fairlead.app.units import seconds, seconds_or_none
from fairlead.errors import UnknownNameError

if TYPE_CHECKING:
    from fairlead.app.kernel import AppKernel, Constants
    from fairlead.kaas.graph import Graph

Decorator = Callable[[Callable[..., object]], AppFunction]


class AppWorkflow(msgspec.Struct, frozen=True, eq=False):
    """A workflow as declared. Called in a unit test it does all its stages, one after the other, in this process."""

    spec: WorkflowSpec
    body: Body
    compiled: Compiled

    @property
    def name(self) -> str:
        """What it is called with."""
        return self.spec.name

    def __call__(self, value: object) -> object:
        """The answer to this value."""
        return answer(unfused_workflow(self.spec), self.compiled, value)


class BoundStage(msgspec.Struct, frozen=True):
    """What an instance needs to run a stage."""

    name: str
    function: AppFunction
    splits: bool
    choose: Callable[[object], str | None]
    """The label of the arm that follows an output; None where nothing is to choose. It raises what the chooser does."""
    using: tuple[str, ...] = ()
    """The parameters that are bound to earlier outputs: their values come in a list, behind the argument."""


class App:
    """Functions and workflows under one name; what `fairlead serve` serves.

    Args:
        name: Part of the address of its workflows.
        nodes: Parts of the machine that are treated as nodes; without any, the whole machine is one. See `node`.
        policy: Who decides, by name; `fairlead policies` lists them.
        parameters: Those of the policy that are not left at their defaults.
        warm_up: Whether the examples of its workflows are run before it is served: once, or several times where a
            function was never measured. Choose False where a call has an effect outside, such as sending a message.
        files: Data files of the app, as paths or patterns below its folder, such as "weights/*.bin". They go wherever
            its instances run; other files are found only on machines that have them.
        requirements: Packages that it needs besides those that are installed: the name of a requirements file in its
            folder, or a list. Its instances run in an environment of their own with them. Write them out, since they
            are read before the file is run.
        on_loss: What becomes of work whose instance, GPU or node is lost: "retry" runs it again elsewhere, up to three
            times in all; "fail" answers with the reason, for functions that must not run twice.
    """

    def __init__(
        self,
        name: str,
        *,
        nodes: Sequence[NodeSpec] = (),
        policy: str = "fairlead",
        parameters: Mapping[str, object] = MappingProxyType({}),
        warm_up: bool = True,
        files: Sequence[str] = (),
        requirements: str | Sequence[str] = (),
        on_loss: Literal["retry", "fail"] = "retry",
    ) -> None:
        if on_loss not in ("retry", "fail"):
            raise ValueError(f"on_loss must be 'retry' or 'fail'; got {on_loss!r}.")
        self.on_loss = on_loss
        self.name = checked_name(name, "an app")
        if not isinstance(policy, str) or not policy:
            raise ValueError(f"policy must be the name of a policy; got {policy!r}.")
        self.policy = policy
        self.parameters = dict(parameters)
        if not isinstance(warm_up, bool):
            raise ValueError(f"warm_up must be True or False; got {warm_up!r}.")
        self.warm_up = warm_up
        if isinstance(files, str) or not all(isinstance(each, str) and each for each in files):
            raise ValueError(f"files must be a list of paths or patterns; got {files!r}.")
        self.files = tuple(files)
        self.requirements = requirements if isinstance(requirements, str) else tuple(requirements)
        self._functions: dict[str, AppFunction] = {}
        self._workflows: dict[str, AppWorkflow] = {}
        self._nodes: dict[str, NodeSpec] = {}
        self._stages: dict[str, BoundStage] = {}  # by "workflow/stage"
        self._binds = False  # whether any of them takes more than its argument
        for each in nodes:
            if not isinstance(each, NodeSpec):
                raise ValueError(f"nodes must be made by app.node(...) or NodeSpec(...); got {each!r}.")
            self.node(
                each.name,
                vcpus=each.vcpus,
                speed=each.speed,
                memory_gb=each.memory_gb,
                devices=each.devices,
                device_memory=each.device_memory_bytes,
            )

    @property
    def functions(self) -> Mapping[str, AppFunction]:
        """By name, in order of declaration; fused ones come with the workflow that fuses them."""
        return MappingProxyType(self._functions)

    @property
    def workflows(self) -> Mapping[str, AppWorkflow]:
        """By name, in order of declaration."""
        return MappingProxyType(self._workflows)

    @overload
    def function(self, code: Callable[..., object], /) -> AppFunction: ...

    @overload
    def function(
        self,
        /,
        *,
        batch: int | Iterable[int] = 1,
        vcpus: float | Iterable[float] = 1,
        gpu: float | Iterable[float] = 0,
        memory_gb: float = 0,
        setup: Callable[[], object] | None = None,
        retries: int = 0,
        run_limit_s: float | str | None = 60,
        start_limit_s: float | str | None = 60,
        keep_alive_s: float | str = 600,
        warm: int = 1,
        name: str | None = None,
        batched: bool | None = None,
        cache: int | str = 0,
    ) -> Decorator: ...

    def function(
        self,
        code: Callable[..., object] | None = None,
        /,
        *,
        batch: int | Iterable[int] = 1,
        vcpus: float | Iterable[float] = 1,
        gpu: float | Iterable[float] = 0,
        memory_gb: float = 0,
        setup: Callable[[], object] | None = None,
        retries: int = 0,
        run_limit_s: float | str | None = 60,
        start_limit_s: float | str | None = 60,
        keep_alive_s: float | str = 600,
        warm: int = 1,
        name: str | None = None,
        batched: bool | None = None,
        cache: int | str = 0,
    ) -> AppFunction | Decorator:
        """Declare a function: a decorator, with or without arguments. What is declared can still be called.

        Args:
            batch: Invocations that one run takes. A number is the greatest (8 stands for 1, 2, 4, 8); several are the
                sizes themselves. Above 1 the function takes and returns lists.
            vcpus: How many an instance gets; several, to let the policy choose.
            gpu: How many vGPUs an instance gets; several, to let the policy choose.
            memory_gb: What an instance may use at most; 0 is no limit.
            setup: Called once per instance, before it takes work; what it returns (a model, say) becomes the first
                argument of every call.
            retries: Further attempts after one that failed.
            run_limit_s: How long a run may take before its instance is ended; None is no limit.
            start_limit_s: How long an instance may take to start, `setup` included.
            keep_alive_s: How long an instance without work is kept.
            warm: Instances that are kept ready from the start.
            name: What it is called; without, as in Python.
            batched: Whether it takes and returns lists; only to say so where every batch is of 1.
            cache: How many answers are kept for equal inputs (10_000), in 64 MB at most; or how much memory they may
                take ("256MB"). Only for a function that gives the same answer to the same input every time.
        """
        sizes = batch_sizes(batch)
        if batched is False and sizes[-1] > 1:
            raise ValueError(f"a batch above 1 needs a function that takes a list; got batch={batch!r}, batched=False.")
        spec = FunctionSpec(
            name="unnamed",
            batch=sizes,
            vcpus=numbers(vcpus, "vcpus", least=0, is_open=True),
            vgpus=numbers(gpu, "gpu", least=0),
            memory_gb=number(memory_gb, "memory_gb", least=0),
            is_batched=sizes[-1] > 1 or batched is True,
            has_setup=setup is not None,
            retries=whole(retries, "retries"),
            run_limit_s=seconds_or_none(run_limit_s, "run_limit_s"),
            start_limit_s=seconds_or_none(start_limit_s, "start_limit_s"),
            keep_alive_s=seconds(keep_alive_s, "keep_alive_s"),
            warm=whole(warm, "warm"),
            cache_entries=(bounds := cache_bounds(cache)).entries,
            cache_bytes=bounds.bytes,
        )
        if (count := len(sizes) * len(spec.vcpus) * len(spec.vgpus)) > MAX_CONFIGURATIONS:
            raise ValueError(f"this makes {count:,} configurations; {MAX_CONFIGURATIONS:,} are the most.")

        def declare(code: Callable[..., object]) -> AppFunction:
            called = checked_name(name if name is not None else getattr(code, "__name__", None), "a function")
            if called in self._functions:
                raise ValueError(f"the app {self.name!r} has two functions named {called!r}; give one another name=...")
            declared = AppFunction(code, setup, msgspec.structs.replace(spec, name=called))
            self._functions[called] = declared
            return declared

        return declare if code is None else declare(code)

    def kernel(
        self,
        name: str,
        graph: "str | PathLike[str] | Graph",
        constants: "Constants" = None,
        *,
        retries: int = 1,
        run_limit_s: float | str = 10,
        keep_alive_s: float | str = 600,
        warm: int = 0,
    ) -> "AppKernel":
        """Declare a kernel: a graph that runs on a device, as a stage of workflows like a function.

        It takes an array if the graph has one input, else a mapping by buffer; it gives likewise.

        Args:
            name: What it is called.
            graph: A graph, or its file (JSON) below the app's folder.
            constants: Values of its constants by buffer or key, or their file (.safetensors) below the app's folder.
            retries: Further attempts after one that failed.
            run_limit_s: How long a run may take on the device; what takes longer is ended there.
            keep_alive_s: How long its constants are kept on a device without work for them.
            warm: On how many devices its constants are loaded from the start.
        """
        from fairlead.app.kernel import AppKernel, read_graph  # noqa: PLC0415 - on demand: most apps have no kernel

        checked_name(name, "a kernel")
        if name in self._functions:
            raise ValueError(f"the app {self.name!r} has two functions named {name!r}; give one another name.")
        folder = Path(sys._getframe(1).f_globals.get("__file__", "")).resolve().parent
        try:
            checked, file = read_graph(graph, folder)
        except ValueError as error:
            raise ValueError(f"kernel {name!r}: {error}") from None
        spec = FunctionSpec(
            name=name,
            vcpus=(0.0,),
            vgpus=(1.0,),
            retries=whole(retries, "retries"),
            run_limit_s=seconds(run_limit_s, "run_limit_s"),
            keep_alive_s=seconds(keep_alive_s, "keep_alive_s"),
            warm=whole(warm, "warm"),
        )
        declared = self._functions[name] = AppKernel(checked, file, constants, folder, spec)
        return declared

    def bundle(self) -> dict[str, bytes]:
        """The files that its kernels need, by their names in the bundle of the app. Raises `ValueError`."""
        found: dict[str, bytes] = {}
        for function in self._functions.values():
            found |= function.bundle()
        return found

    def node(
        self,
        name: str,
        *,
        vcpus: float,
        speed: float = 1,
        memory_gb: float | None = None,
        devices: Sequence[str] = (),
        device_memory: int | str = 0,
    ) -> NodeSpec:
        """Treat a part of this machine as a node: it never gets more than `vcpus` x `speed` real cores.

        A node of speed 0.5 takes twice as long for everything but kernels. Those run on its `devices`, such as
        "opencl:0", each with at most `device_memory` ("64MB", or bytes; 0 for all that the driver reports).
        """
        checked_name(name, "a node")
        if name in self._nodes:
            raise ValueError(f"the app {self.name!r} has two nodes named {name!r}.")
        if memory_gb is not None:
            memory_gb = number(memory_gb, f"memory_gb of node {name!r}", least=0, is_open=True)
        spec = NodeSpec(
            name=name,
            vcpus=number(vcpus, f"vcpus of node {name!r}", least=0, is_open=True),
            speed=number(speed, f"speed of node {name!r}", least=0, is_open=True),
            memory_gb=memory_gb,
            devices=device_names(devices, f"devices of node {name!r}"),
            device_memory_bytes=size_bytes(device_memory, f"device_memory of node {name!r}"),
        )
        self._nodes[name] = spec
        return spec

    def workflow(
        self,
        name: str,
        body: Body,
        *,
        slo: float | str | None = None,
        cost_usd: float | None = None,
        example: object = MISSING,
        description: str = "",
        fuse: Fuse = False,
        compete: Compete = MappingProxyType({}),
    ) -> AppWorkflow:
        """Declare a workflow.

        Args:
            name: What it is called with.
            body: A function, `a >> b`, `fork`, `each`, `switch`.
            slo: How soon it must answer, such as "800ms" or 0.8 (seconds); None is no objective.
            cost_usd: What one request may cost at most.
            example: An input to try it with: `fairlead profile` and `fairlead load` take it, and `fairlead serve` runs
                it once before it takes requests.
            description: One sentence for those who call it.
            fuse: Chains of stages that run in one instance, one after the other: True for all that can be fused, or
                some of them, such as "a+b" or [(a, b), (c, d)]. Other workflows with the same functions are as they
                were.
            compete: How many copies of a stage run at once, of which the first answer wins, such as {"b": 2}. A copy
                that loses is stopped, so a function that competes should have no effects outside.
        """
        checked_name(name, "a workflow")
        if name in self._workflows:
            raise ValueError(f"the app {self.name!r} has two workflows named {name!r}.")
        try:
            body_of(body, "its body")
            compiled = compile_body(body)
        except ValueError as error:
            raise ValueError(f"workflow {name!r}: {error}") from None
        for stage, code in compiled.codes.items():
            found = self._functions.get(code.name)
            if found is not code:
                raise ValueError(f"workflow {name!r}: function {code.name!r} is not of the app {self.name!r}.")
            if found.spec.kernel is not None and stage in compiled.switches:
                raise ValueError(
                    f"workflow {name!r}: a device runs no Python, so the kernel {code.name!r} cannot choose an arm; "
                    "put a function between it and the switch."
                )
        try:
            for each in compiled.stages:
                self._functions[each.function].check_bound(each.using)
        except ValueError as error:
            raise ValueError(f"workflow {name!r}: {error}") from None
        spec = WorkflowSpec(
            name=name,
            stages=compiled.stages,
            answer=compiled.answer,
            slo_s=seconds_or_none(slo, "slo"),
            cost_usd=_positive_or_none(cost_usd, "cost_usd"),
            splits_input=compiled.splits_input,
            example=None if example is MISSING else _packed(example, name),
            description=description,
        )
        spec = self._shaped(spec, compiled, fuse, compete)
        workflow = AppWorkflow(spec, body, compiled)
        self._workflows[name] = workflow
        self._bind(workflow)
        return workflow

    def workflow_from(self, source: str | PathLike[str], *, example: object = MISSING) -> AppWorkflow:
        """Declare a workflow from a document of the CNCF Serverless Workflow DSL 1.0: a path, or the text itself."""
        from fairlead.app.dsl import read_workflow  # noqa: PLC0415 - on demand: who reads none needs no YAML library

        read = read_workflow(source, self)
        return self.workflow(
            read.name,
            read.body,
            slo=read.slo_s,
            cost_usd=read.cost_usd,
            example=example,
            description=read.description,
            fuse=read.fuse,
            compete=read.compete,
        )

    def _shaped(self, spec: WorkflowSpec, compiled: Compiled, fuse: Fuse, compete: Compete) -> WorkflowSpec:
        """The workflow with its stages fused and competing as asked; fused functions are declared here."""
        functions = {name: function.spec for name, function in self._functions.items()}
        plain = {stage.name for stage in spec.stages}
        option = "compete"
        try:
            copies = copies_of(compete, compiled.codes)
            single = {name: count for name, count in copies.items() if name in plain}
            spec = with_copies(spec, single)
            option = "fuse"
            chains = chains_of(fuse, compiled.codes)
            if chains is None:
                chains = all_chains(spec.stages, functions)
            spec, made = fuse_workflow(spec, functions, chains)
            option = "compete"
            spec = with_copies(spec, copies)
        except ValueError as error:
            raise ValueError(f"workflow {spec.name!r}: {option}: {error}") from None
        for name, function in made.items():
            if name not in self._functions:
                parts = [self._functions[part] for part in function.parts]
                self._functions[name] = FusedFunction(parts, function)
        return spec

    def manifest(self) -> Manifest:
        """All that can be said of this app without its code."""
        if not self._workflows:
            raise ValueError(f"the app {self.name!r} has no workflow; declare one with app.workflow(name, body).")
        workflows = tuple(workflow.spec for workflow in self._workflows.values())
        specs = {name: function.spec for name, function in self._functions.items()}
        functions, parts = split_parts(specs, workflows)
        manifest = Manifest(
            name=self.name,
            functions=functions,
            workflows=workflows,
            nodes=tuple(self._nodes.values()),
            policy=self.policy,
            parameters=self.parameters,
            warm_up=self.warm_up,
            parts=parts,
            on_loss=self.on_loss,
        )
        try:
            same = msgspec.json.decode(msgspec.json.encode(manifest), type=Manifest) == manifest
        except TypeError:
            same = False
        if not same:
            raise ValueError(f"the parameters of the app {self.name!r} must be plain values; got {self.parameters!r}.")
        return manifest

    def stage(self, key: str) -> BoundStage:
        """What an instance needs to run the stage that goes by "workflow/stage". Asked for every invocation."""
        found = self._stages.get(key)
        if found is not None:
            return found
        name, _, stage = key.partition("/")
        if name not in self._workflows:
            raise UnknownNameError("workflow", name, self._workflows)
        known = [each.name for each in self._workflows[name].spec.stages]
        raise UnknownNameError(f"stage of workflow {name!r}", stage, known)

    def bindings(self, keys: Iterable[str]) -> Sequence[tuple[str, ...]]:
        """The further parameters that each of these stages binds; empty where no stage of the app binds any."""
        return [self.stage(key).using for key in keys] if self._binds else ()

    def _bind(self, workflow: AppWorkflow) -> None:
        spec = workflow.spec
        for stage in (*spec.stages, *(spec.unfused.stages if spec.unfused is not None else ())):
            last = stage.parts[-1] if stage.parts else stage.name
            switch = workflow.compiled.switches.get(last)
            self._stages[f"{workflow.name}/{stage.name}"] = BoundStage(
                name=stage.name,
                function=self._functions[stage.function],
                splits=stage.splits,
                choose=_nothing_to_choose if switch is None else switch.choose,
                using=tuple(stage.using),
            )
            self._binds |= bool(stage.using)


def _nothing_to_choose(output: object) -> None:
    return None


def _positive_or_none(value: float | None, name: str) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (is_number and isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a positive number, or None; got {value!r}.")
    return None if value is None else float(value)


def _packed(example: object, workflow: str) -> bytes:
    try:
        return msgspec.msgpack.encode(example)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"workflow {workflow!r}: the example must be made of plain values: {error}.") from None
