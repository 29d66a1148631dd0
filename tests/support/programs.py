"""Server programs that some tests need and pip cannot install.

A test says ``@pytest.mark.needs_program("rabbitmq-server")``. Where the program is missing it is skipped, and
the end of the run lists what to install; ``GOMQ_FORBID_SKIPS=1`` (set by CI) makes it fail instead.
"""
import os
import re
import shutil

# Program -> Debian package. One line per program that a test may name;
# a path stands for a library that a program needs.
DEBIAN_PACKAGES = {
    "cc": "gcc libc6-dev python3-dev",
    "rabbitmq-server": "rabbitmq-server",
    "rabbitmqctl": "rabbitmq-server",
    "rabbitmqadmin": "rabbitmq-server",
    "java": "default-jdk-headless",
    "mvn": "maven",
    "go": "golang-go",
    "ruby": "ruby",
    "amqp-publish": "amqp-tools",
    "/usr/share/java/amqp-client.jar": "librabbitmq-client-java",
    "/usr/share/gocode/src/github.com/rabbitmq/amqp091-go": "golang-github-rabbitmq-amqp091-go-dev",
    "/usr/share/doc/ruby-bunny": "ruby-bunny",
    "strace": "strace",
    "mosquitto": "mosquitto",
    "etcd": "etcd-server",
    "mosquitto_sub": "mosquitto-clients",
    "node": "nodejs",
    "/usr/share/nodejs/mqtt": "node-mqtt",
    "chromium": "chromium",
    "buildah": "buildah",
    "prometheus": "prometheus",
    "promtool": "prometheus",
}
# Debian puts servers where an ordinary user's PATH does not look.
_MORE_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/sbin")


def find(name):
    """The program's path, or None. A path is looked for where it says."""
    if name.startswith("/"):
        return name if os.path.exists(name) else None
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", os.defpath), *_MORE_FOLDERS]))


def install_command(names):
    """What installs these programs on Debian."""
    return "apt-get install -y " + " ".join(sorted({DEBIAN_PACKAGES.get(name, name) for name in names}))


def skip_reason(name):
    """What a skipped test says."""
    return f"needs the program {name}"


def missing_from(text):
    """The program that a skip reason names, or None."""
    found = re.search(r"needs the program ([\w./-]+)", text)
    return found and found[1]


def skips_are_forbidden():
    """True in CI, where a missing program is a fault."""
    return os.environ.get("GOMQ_FORBID_SKIPS", "") not in ("", "0")
