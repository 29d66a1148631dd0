# make run     a broker on this machine, from nothing but python3 and make
# make test    the whole suite, in an environment of its own; SPARK=0 leaves out what needs Spark (1 GB on the disk)
# make spark-kills   kill Spark ten times and the broker once over 2 million messages: every offset once. Some minutes
# make bench-spark   what reading through Spark costs (docs/spark.md)
# make check gomq_py/net/output.py   what to run before a push: builds, then the tests of the rooms of these files and of the
#              house; without files, of what differs from the upstream branch
# make lint    flake8, mypy, and the subjects of new commits
# make docs    writes the tables of docs/arguments.md
# make bench   the performance table (docs/performance.md), and its figures in load/results.json, an entry for each version
# make bench-scaling  how cost grows with consumers, bindings, queues, messages and connections: plots in docs/images, ten minutes
# make expectations   the conformance tests against Debian's rabbitmq-server and mosquitto, and against sid's rabbitmq-server,
#              installed into /var/tmp (docs/testing.md): are they what those really answer?
# make kills   200 kills of brokers under MQTT at QoS 1 and 2, 100 of the two brokers of a link, and the long ones
#              under AMQP, with what became of the messages: some minutes
# make fuzz TARGET=tables SECONDS=600   look for inputs that break a promise; TARGET=all for every target (docs/testing.md)
# make asan    the compiled modules under AddressSanitizer and UndefinedBehaviorSanitizer
# make processors   checksums and integers in C for aarch64 and s390x, under qemu-user (docs/testing.md): seconds
# make harness  every value at every place by every door, of which make test runs a chosen part (docs/testing.md): some minutes
# make fuzz-http   25 made-up requests for each operation of the management API: some minutes
# make simulate SEED=38     a broker, clients, clock and disk that a seed drives (docs/contributing/simulation.md), with its trace
# make simulate SEEDS=10000   these from 1 on, or SEEDS=500-600, on all processors: figures into docs/promises.md from 10 000 on
# make simulate SEEDS="--mutant all 1-1000"   which seed finds each known fault; --twins compares the compiled modules
# make simulate-cluster SEEDS=10000   elections, in-sync set and promises of a cluster under faults that a seed draws; SEED=38 with its trace
# make simulate-cluster SEEDS="1-2000 --mutant all"   which seed finds each known fault
# make simulate-nodes SEEDS=1000   three whole nodes of a cluster, their disks and network, beside a model of etcd; SEED=38, --mutant as above
# make cluster-rounds SEEDS=1-300   three nodes, etcd and clients through faults that a seed chooses; SEEDS=7 for
#              one; some 10 s each. The logs of a round that fails are shown, and kept in build/cluster-rounds
# make load     Locust's users at a broker for a minute: rates, latencies, what it cost (LOAD_USERS, LOAD_SECONDS, LOAD_SHAPE)
# make load-ui  the same in Locust's page, http://127.0.0.1:8089 (load/README.md)
# make bench-tasks   what a task costs in the task queue, in Celery and (where it is installed) in dramatiq: some minutes
# make wheel   dist/*.whl with compiled modules, installed and tried in an environment of its own
# make wheels  a wheel for each CPython from 3.11 to 3.14 on this machine, or for PYTHONS="python3.13 ..."; 3.14 may be Debian's
#              (python -m tests.support.python_of_sid). Some minutes for each
# make sdist   dist/*.tar.gz of the sources
# make site    the documentation with a search, in build/site, links checked (docs/contributing/release.md)
# make clean   everything that the above made, but no broker's data

PYTHON ?= python3
VENV ?= .venv
DATA ?= .gomq-data
RUN ?=
TARGET ?= all
SECONDS ?= 600
SEED ?=
SEEDS ?= 100
SPARK ?= 1
# Most tests wait for a broker, not for a core: four at a time. Who is done takes over from the others, for tests that take long lie together.
PYTEST ?= -n 4 --dist worksteal

BIN := $(VENV)/bin
SOURCES := $(shell find gomq_py -name '*.py' -o -name '*.pxd')
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
COMPILE := $(BIN)/python setup.py -q build_ext --inplace

.PHONY: run test check lint docs screenshots bench bench-scaling expectations kills fuzz asan processors harness fuzz-http simulate simulate-cluster simulate-nodes cluster-rounds load load-ui bench-tasks wheel wheels sdist site clean build test-spark spark-kills bench-spark

run: $(VENV)/run.stamp
	@exec $(BIN)/gomq-py --data-dir $(DATA) --bind 127.0.0.1 $(RUN)

test: $(VENV)/dev.stamp build
	SPARK=0 $(BIN)/python -m pytest $(PYTEST)
ifeq ($(SPARK)-$(origin PYTEST),1-file)
	$(MAKE) test-spark
endif

# Two processes: one for the tests that share a session, one for those that start Spark (tests/spark/conftest.py).
test-spark: $(VENV)/spark.stamp build
	$(BIN)/python -m pytest -n 2 tests/spark

spark-kills: $(VENV)/spark.stamp build
	GOMQ_SPARK_KILLS=10 GOMQ_SPARK_MESSAGES=2002000 $(BIN)/python -m pytest tests/spark/test_kills.py --timeout 3600

bench-spark: $(VENV)/spark.stamp build
	$(BIN)/python -m load.spark

# The words behind check are its files, and nothing to make.
ifeq ($(firstword $(MAKECMDGOALS)),check)
FILES := $(wordlist 2,$(words $(MAKECMDGOALS)),$(MAKECMDGOALS))
MAKEFLAGS += --silent
$(FILES): ;
endif
check: $(VENV)/dev.stamp build
	$(BIN)/python -m tests.check $(FILES)

lint: $(VENV)/dev.stamp
	$(BIN)/flake8
	$(BIN)/mypy
	$(BIN)/python -m tests.check --subjects

docs: $(VENV)/dev.stamp
	$(BIN)/python -m tests.docs

bench: $(VENV)/dev.stamp build
	$(BIN)/python -m load.bench
	$(BIN)/python -m load.features
	$(BIN)/python -m load.shovels --idle 1000 --write

bench-scaling: $(VENV)/dev.stamp build
	$(BIN)/python -m load.scaling

expectations: $(VENV)/dev.stamp build
	GOMQ_TEST_BROKER=rabbitmq $(BIN)/python -m pytest -n 2 tests/conformance --ignore tests/conformance/mqtt
	-$(BIN)/python -m tests.support.rabbitmq_of_sid
	GOMQ_TEST_BROKER=rabbitmq-4 $(BIN)/python -m pytest -n 2 tests/conformance --ignore tests/conformance/mqtt
	GOMQ_TEST_BROKER=mosquitto $(BIN)/python -m pytest -n 2 tests/conformance/mqtt

kills: $(VENV)/dev.stamp build
	GOMQ_MQTT_KILLS=200 GOMQ_LINK_KILLS=100 $(BIN)/python -m pytest -n 2 -rP --timeout 1800 \
		tests/durability/test_mqtt_kill.py tests/durability/test_kill.py tests/e2e/links/test_kills.py

fuzz: $(VENV)/dev.stamp
	@$(BIN)/python -c 'import atheris' 2>/dev/null || GOMQ_PURE_PYTHON=1 $(PIP) install -e '.[fuzz]'
	$(BIN)/python -m tests.fuzz.run $(TARGET) --seconds $(SECONDS)

asan: $(VENV)/dev.stamp
	$(BIN)/python -m tests.asan

processors: $(VENV)/dev.stamp
	$(BIN)/python -m tests.processors

harness: $(VENV)/dev.stamp build
	GOMQ_HARNESS=full $(BIN)/python -m pytest -n 2 tests/harness

fuzz-http: $(VENV)/dev.stamp build
	GOMQ_FUZZ_EXAMPLES=25 $(BIN)/python -m pytest -n 2 tests/management/test_fuzz.py

simulate: $(VENV)/dev.stamp
	@$(BIN)/python -m tests.simulation $(or $(SEED),$(if $(findstring -,$(SEEDS)),,1-)$(SEEDS))

simulate-cluster: $(VENV)/dev.stamp
	@$(BIN)/python -m tests.cluster_simulation $(or $(SEED),$(if $(findstring -,$(SEEDS)),,1-)$(SEEDS))

simulate-nodes: $(VENV)/dev.stamp
	@$(BIN)/python -m tests.node_simulation $(or $(SEED),$(if $(findstring -,$(SEEDS)),,1-)$(SEEDS))

cluster-rounds: $(VENV)/dev.stamp build
	GOMQ_CLUSTER_ROUNDS=$(SEEDS) GOMQ_ROUNDS_KEEP=$(CURDIR)/build/cluster-rounds \
		$(BIN)/python -m pytest -rP --timeout 1800 -x tests/cluster_rounds/test_rounds.py

screenshots: $(VENV)/dev.stamp build
	$(BIN)/python -m tests.ui.screenshots

load: $(VENV)/load.stamp build
	$(BIN)/python -m load.locust_run

load-ui: $(VENV)/load.stamp build
	$(BIN)/python -m load.locust_run --ui

bench-tasks: $(VENV)/dev.stamp build
	$(BIN)/python -m load.task_queues

wheel: build
	.ci/wheel

PYTHONS ?= --all
wheels: $(VENV)/dev.stamp
	.ci/wheel $(PYTHONS)

sdist: $(VENV)/dev.stamp
	$(BIN)/python setup.py -q sdist
	$(BIN)/python -m twine check --strict dist/*.tar.gz

site: $(VENV)/dev.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "build/site/index.html"

# Compiles what has changed since the last time; without a compiler it says so and the suite runs interpreted.
build: $(VENV)/dev.stamp
	@$(COMPILE)
	@touch $(VENV)/run.stamp

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "gomq-py needs Python 3.11 or newer: make PYTHON=python3.13"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "no venv module: apt-get install python3-venv"; exit 1; }

$(VENV)/run.stamp: $(VENV)/base.stamp $(SOURCES)
	@$(COMPILE)
	@touch $@

# Installed as they are, with what compiles them: COMPILE does that once, and says what it is doing.
$(VENV)/base.stamp: $(BIN)/python setup.cfg setup.py pyproject.toml
	@echo "installing into $(VENV)"
	@GOMQ_PURE_PYTHON=1 $(PIP) install -e '.[compile]'
	@touch $@

$(VENV)/dev.stamp: $(BIN)/python setup.cfg setup.py pyproject.toml
	@echo "installing into $(VENV), with everything the tests need"
	@GOMQ_PURE_PYTHON=1 $(PIP) install -e '.[dev]'
	@touch $@ $(VENV)/base.stamp

$(VENV)/load.stamp: $(VENV)/dev.stamp
	@$(BIN)/python -c 'import locust, paho.mqtt' 2>/dev/null || GOMQ_PURE_PYTHON=1 $(PIP) install -e '.[load]'
	@touch $@

# Java is the installed one, or else that of an extra, which needs no root.
$(VENV)/spark.stamp: $(VENV)/dev.stamp
	@echo "installing Spark into $(VENV): some 500 MB the first time"
	@GOMQ_PURE_PYTHON=1 $(PIP) install -e '.[spark-test]'
	@$(BIN)/python -c 'from gomq_py.pipeline.java import find_java; find_java()' 2>/dev/null || GOMQ_PURE_PYTHON=1 $(PIP) install -e '.[spark-jre]'
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .hypothesis
	find gomq_py -name '*.so' -delete -o -name '*.c' -delete
