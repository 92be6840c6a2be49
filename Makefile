# Each verb sets up its own environment in .venv first. PYTHON chooses the interpreter: by default the
# first of these that is there and is 3.11 or later.
# EXTRAS is what is installed; `make demo EXTRAS=tpu` is the light way, without torch and triton.
ifndef PYTHON
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON := $(firstword $(foreach name,python3.11 python3 python3.12 python3.13 python3.14 python, \
	$(shell $(name) -c '$(NEW_ENOUGH)' 2>/dev/null && echo $(name))))
endif
VENV ?= .venv
EXTRAS ?= test
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed-$(EXTRAS)
JOBS ?= 2
# What compilers said of modules that have not changed since.
export SHARDWRIGHT_COMPILED ?= $(abspath build/compiled)
# The tests of a file run in one process: what they share, a fixture or a worker, is made once.
PYTEST = $(BIN)/python -m pytest -n $(JOBS) --dist loadfile

# Certificates are the system's, as for pip from 24.2 on, unless pip is told otherwise; that of
# Python 3.11 trusts only those it brings.
CERTS := $(firstword $(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt))
TRUST := $(BIN)/python -m pip config get global.cert >/dev/null 2>&1 \
	|| export PIP_CERT="$${PIP_CERT-$(CERTS)}"

# A later triton than the one that torch asks for, in an environment of its own: that of .venv with
# this package in front.
LATER_TRITON := 3.9.0
LATER := $(VENV)/triton-$(LATER_TRITON)

# A later Python and jax, in an environment of its own, where such a Python is installed.
LATER_JAX := 0.12.0.1
LATER_PYTHON ?= $(firstword $(wildcard $(HOME)/.pyenv/versions/3.13.*/bin/python) \
	$(wildcard $(HOME)/.pyenv/versions/3.12.*/bin/python) \
	$(foreach name,python3.13 python3.12,$(shell $(name) -c '' 2>/dev/null && echo $(name))))
LATER_VENV := $(VENV)/later

# Code that layouts are learned from, beside .venv: it asks for other versions of torch.
PEERS := $(VENV)/peers
PROGRAMS := $(VENV)/programs

GOLDEN_TESTS := tests/emit/test_emission.py tests/emit/test_kernel_goldens.py
GPU := tests/backends/triton_gpu
# Of each kind of module one: tiles that differ, a sum, two meshes, a matmul, one too large to run.
GPU_BUNDLES := transpose_3x4_uneven reduce_scatter_2x4 trainer_to_server matmul_scatter_gpu \
	axis_order_swap
# What is compiled depends on the compiler; that kernels are right in its interpreter, `verify` sees.
GPU_TESTS := $(GPU)/test_gpu_assembly.py $(GPU)/test_gpu_matmul_code.py \
	$(GPU)/test_gpu_matmul_tma.py \
	$(GPU)/test_gpu_kernel.py::test_sixteen_bytes_where_they_are_proven \
	$(GPU)/test_gpu_kernel.py::test_offsets_of_large_shards_have_64_bits

.PHONY: demo test later peers programs release gpu-test gpu-check tpu-check sweep fuzz check exhaustive golden style docs bench clean
.DELETE_ON_ERROR:

# Of the files of torch and jax few are imported, and Python compiles those when they are.
$(STAMP): pyproject.toml constraints.txt
	@test -n '$(PYTHON)' || { echo "no Python 3.11 or later on PATH: make PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(TRUST); $(BIN)/python -m pip install --quiet --no-compile -c constraints.txt -e '.[$(EXTRAS)]'
	touch $@

$(LATER)/.installed: $(STAMP)
	$(TRUST); $(BIN)/python -m pip install --quiet --no-compile --no-deps --upgrade --target $(LATER) \
		triton==$(LATER_TRITON)
	touch $@

$(LATER_VENV)/.installed: pyproject.toml
	$(LATER_PYTHON) -m venv $(LATER_VENV)
	$(TRUST); $(LATER_VENV)/bin/python -m pip install --quiet --no-compile -e '.[jax]' jax==$(LATER_JAX)
	touch $@

$(PEERS)/.installed: $(STAMP) tests/peers/requirements.txt
	$(TRUST); $(BIN)/python -m pip install --quiet --no-compile --no-deps --upgrade --target $(PEERS) \
		-r tests/peers/requirements.txt
	touch $@

$(PROGRAMS)/.installed: $(STAMP) tests/peers/program_requirements.txt
	$(TRUST); $(BIN)/python -m pip install --quiet --no-compile --no-deps --upgrade --target $(PROGRAMS) \
		-r tests/peers/program_requirements.txt
	touch $@

demo: $(STAMP)  ## emit reshards of the corpus, run them against the oracle, print a table
	rm -rf build/demo  # bundles of another version would be refused
	$(BIN)/shardwright demo corpus/reshards.toml -o build/demo --extras $(EXTRAS)

test: $(STAMP)  ## the tests
	$(PYTEST)

gpu-test: export PYTHONPATH := $(abspath $(LATER))
gpu-test: $(LATER)/.installed  ## compile Triton kernels, and verify some bundles, with a later triton
	$(BIN)/python -c 'import triton; assert triton.__version__ == "$(LATER_TRITON)", triton'
	$(PYTEST) $(GPU_TESTS)
	$(BIN)/shardwright verify $(GPU_BUNDLES:%=generated/%) --backends triton_gpu

gpu-check: $(STAMP)  ## Triton modules on the GPU here, as a table in build/gpu_check; DRY=1: interpreted
	GPU_CHECK_DRY=$(DRY) $(BIN)/python -m bench.gpu_check

tpu-check: $(STAMP)  ## JAX modules on the TPUs here, as a table in build/tpu_check; DRY=1: on CPU devices
	TPU_CHECK_DRY=$(DRY) $(BIN)/python -m bench.tpu_check

ifeq ($(LATER_PYTHON),)
later:
	@echo "no Python 3.12 or 3.13 on this machine: jax $(LATER_JAX) is not tried"
else
later: $(LATER_VENV)/.installed  ## emission, self-checks, `verify` and a program with a later jax
	$(LATER_VENV)/bin/python tests/later_jax.py
endif

release: $(STAMP)  ## build the wheel and the sdist, install each in empty environments, publish nothing
	$(BIN)/python tests/release.py

peers: $(PEERS)/.installed  ## learn layouts from vLLM, Megatron-core and transformers
	PYTHONPATH=$(abspath $(PEERS)) $(BIN)/python -m pytest -n 0 tests/peers

programs: export PYTHONPATH := $(abspath $(PROGRAMS))
programs: $(PROGRAMS)/.installed  ## programs of flax, optax and others in both modes, as a table
	@mkdir -p build
	for mode in as_shardy cheapest; do \
		$(BIN)/python tests/peers/program_process.py $$mode > build/programs_$$mode.log || exit 1; done
	$(BIN)/python tests/peers/program_table.py build/programs_*.log

sweep: $(STAMP)  ## the long sweeps: all pairs of shardings, hundreds of random reshards
	$(PYTEST) -m 'slow and not exhaustive'

exhaustive: $(STAMP)  ## all that the long sweeps take a part of, other random examples: hours
	$(PYTEST) -m 'exhaustive or hypothesis' --hypothesis-profile=random

COUNT ?= 3400
fuzz: $(STAMP)  ## so many random cases of what is emitted, by their ids
	$(BIN)/python -m tests.fuzz --count $(COUNT) --jobs $(JOBS)

check: style  ## style, types, and whether generated/ is what would be emitted now
	$(BIN)/mypy
	$(BIN)/shardwright check

style: $(STAMP)  ## lint and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

golden: $(STAMP)  ## write generated/ and the golden texts again; review the diff
	$(BIN)/shardwright emit
	$(BIN)/python -m pytest -n 0 $(GOLDEN_TESTS) --update-golden

docs: export NO_MKDOCS_2_WARNING := 1
docs: $(STAMP)  ## the pages of docs/ as a site in build/docs; a warning or a broken link fails
	$(BIN)/mkdocs build

bench: $(STAMP)  ## what is measured, as tables
	$(BIN)/python -m bench

clean:
	rm -rf $(VENV) build
