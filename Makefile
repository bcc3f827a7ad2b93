# The whole interface: make setup | check | test | test-slow | test-ray | test-cuda | demo | bench | bench-live | bench-ray | docs
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
RAY    ?= .venv-ray
PEERS  ?= .venv-peers
CUDA   ?= .venv-cuda
# Bytecode is written even where the environment says not to: hundreds of tests start a process, and each would compile anew.
export PYTHONDONTWRITEBYTECODE :=
# Whole outputs instead of mixed lines, where make is able to (4.0).
WHOLE  := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

.PHONY: setup check test test-slow test-ray test-cuda demo bench bench-live bench-ray docs clean compile compile-checked models

setup: $(READY)

$(READY): requirements/dev.txt pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing pinned packages into $(VENV) (once; a minute or two)"
	@$(BIN)/python -m pip install --disable-pip-version-check --progress-bar on -q --no-compile -r requirements/dev.txt
	@$(BIN)/python -m pip install --disable-pip-version-check -q --no-deps --no-build-isolation -e .
	@touch $@

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# Compiled first, lest the workers compile the same; beside the checks, since each of the two keeps one core busy.
# Three workers on two cores: tests of processes wait for them a third of their time.
test: setup
	@echo "Checking, getting weights, and compiling the engine (once; a minute or two)"
	@$(MAKE) --no-print-directory --jobs=2 $(WHOLE) models check compile
	$(BIN)/pytest -n 3 --dist worksteal

test-slow: setup
	@$(MAKE) --no-print-directory --jobs=2 $(WHOLE) compile compile-checked
	$(BIN)/pytest -n 2 -m slow

# Everything that starts a Ray cluster, also what takes longer; one after the other, as each has raylets of its own.
test-ray: setup
	$(BIN)/pytest -m "ray or ray_long" tests/live tests/docs

# Every CUDA source of every shipped graph through NVRTC, which needs no GPU. The environment has CUDA only (0.5 GB); all
# else comes from $(VENV).
test-cuda: setup $(CUDA)/.ready
	PYTHONPATH=src:$$($(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))") \
		$(CUDA)/bin/python -m pytest tests/kaas/test_cuda_sources.py

$(CUDA)/.ready: requirements/cuda.txt
	@test -x $(CUDA)/bin/python || $(PYTHON) -m venv $(CUDA)
	@echo "Installing CUDA's compiler into $(CUDA) (once; a minute or two)"
	@$(CUDA)/bin/python -m pip install --disable-pip-version-check --progress-bar on -q -r requirements/cuda.txt
	@touch $@

# The weights of the video workflow, which its tests need: got once, into the folder where tests/conftest.py looks.
models: setup
	FAIRLEAD_MODELS=$${FAIRLEAD_MODELS:-build/models} $(BIN)/fairlead models pull --no-clip

compile: setup
	$(BIN)/fairlead warmup

# The engine with bounds checks, which two of the slow tests need.
compile-checked: setup
	$(BIN)/python tests/compiled/run_checked.py

demo: setup
	$(BIN)/fairlead demo

# Beside C, SimPy and simfaas, which has an environment of its own. ARGS="--quick" for a look.
bench: setup $(PEERS)/.ready
	$(BIN)/python benchmarks/bench.py --peers-python $(PEERS)/bin/python $(ARGS)

$(PEERS)/.ready: requirements/bench-peers.txt
	@test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	@echo "Installing simfaas into $(PEERS) (once; a minute)"
	@$(PEERS)/bin/python -m pip install --disable-pip-version-check --progress-bar on -q -r requirements/bench-peers.txt
	@touch $@

# Against Ray Serve, which has an environment of its own. ARGS="--quick" for a look.
bench-live: setup $(RAY)/.ready
	$(BIN)/python benchmarks/live/bench_live.py --ray-python $(RAY)/bin/python $(ARGS)

$(RAY)/.ready: requirements/bench-live.txt
	@test -x $(RAY)/bin/python || $(PYTHON) -m venv $(RAY)
	@echo "Installing Ray Serve into $(RAY) (once; a minute or two)"
	@$(RAY)/bin/python -m pip install --disable-pip-version-check --progress-bar on -q -r requirements/bench-live.txt
	@touch $@

# Fairlead and Ray Serve on the same Ray cluster. ARGS="--quick" for a look.
bench-ray: $(RAY)/.served
	$(RAY)/bin/python benchmarks/cluster/bench_cluster.py $(ARGS)

# The environment of Ray Serve, with Fairlead in it, whose packages have the versions of requirements/dev.txt.
$(RAY)/.served: $(RAY)/.ready requirements/dev.txt pyproject.toml
	@echo "Installing Fairlead into $(RAY) (once; a minute)"
	@$(RAY)/bin/python -m pip install --disable-pip-version-check --progress-bar on -q -c requirements/dev.txt hatchling editables
	@$(RAY)/bin/python -m pip install --disable-pip-version-check -q -c requirements/dev.txt --no-build-isolation -e '.[ray]'
	@touch $@

docs: setup
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) $(RAY) $(PEERS) build dist site runs .pytest_cache .mypy_cache .ruff_cache
