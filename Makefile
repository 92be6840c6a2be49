# Each verb sets up its own environment in .venv first. PYTHON chooses the interpreter.
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
JOBS ?= 2

.PHONY: demo test sweep fuzz check golden style bench clean
.DELETE_ON_ERROR:

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[test]'
	touch $@

demo: $(STAMP)  ## emit reshards of the corpus, run them against the oracle, print a table
	$(BIN)/shardwright demo corpus/reshards.toml -o build/demo

test: $(STAMP)  ## the tests
	$(BIN)/python -m pytest -n $(JOBS)

sweep: $(STAMP)  ## the long sweeps: all pairs of shardings, hundreds of random reshards
	$(BIN)/python -m pytest -n $(JOBS) -m slow

COUNT ?= 3400
fuzz: $(STAMP)  ## so many random cases of what is emitted, by their ids
	$(BIN)/python -m tests.fuzz --count $(COUNT) --jobs $(JOBS)

check: style  ## style, types, and whether generated/ is what would be emitted now
	$(BIN)/mypy
	$(BIN)/shardwright check generated

style: $(STAMP)  ## lint and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

golden: $(STAMP)  ## write generated/ and the golden texts again; review the diff
	$(BIN)/shardwright emit corpus/reshards.toml -o generated
	$(BIN)/shardwright emit corpus/examples.toml -o generated
	$(BIN)/python -m pytest -n 0 tests/test_emission.py --update-golden

bench: $(STAMP)  ## what is measured, as tables
	$(BIN)/python -m bench

clean:
	rm -rf $(VENV) build
