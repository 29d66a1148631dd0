"""Vhosts that are protected from deletion, as RabbitMQ 4.1 protects them."""
import pytest

from tests.management.conftest import API
from tests.support.broker_process import BrokerProcess

REFUSAL = {
    "error": "precondition_failed",
    "reason": "Refusing to delete virtual host 'kept' because it is protected from deletion",
}


@pytest.fixture
def kept(api):
    """A vhost ``kept`` with a queue."""
    api.put("vhosts/kept")
    api.put("queues/kept/q", {"durable": True})
    yield
    api.delete("vhosts/kept/deletion/protection")
    api.delete("vhosts/kept")


def is_protected(api):
    found = api.get("vhosts/kept").json()
    assert found["metadata"].get("protected_from_deletion", False) is found["protected_from_deletion"]
    return found["protected_from_deletion"]


def test_a_protected_vhost_is_not_deleted_until_the_protection_is_lifted(api, kept):
    assert not is_protected(api)
    assert api.post("vhosts/kept/deletion/protection").status_code == 204

    refused = api.delete("vhosts/kept")

    assert (refused.status_code, refused.json()) == (412, REFUSAL)
    assert is_protected(api) and api.get("queues/kept/q").status_code == 200
    assert api.delete("vhosts/kept/deletion/protection").status_code == 204
    assert api.delete("vhosts/kept").status_code == 204
    assert api.get("vhosts/kept").status_code == 404


def test_a_vhost_is_protected_when_it_is_put_and_a_later_put_leaves_that_as_it_is(api, kept):
    assert api.put("vhosts/kept", {"protected_from_deletion": True}).status_code == 204
    assert api.put("vhosts/kept", {"description": "another"}).status_code == 204

    assert api.delete("vhosts/kept").status_code == 412
    assert api.put("vhosts/kept", {"protected_from_deletion": False}).status_code == 204
    assert not is_protected(api)


@pytest.mark.parametrize("value", ["yes", 1, {}, []])
def test_a_protection_that_is_no_truth_is_refused(api, kept, value):
    assert api.put("vhosts/kept", {"protected_from_deletion": value}).status_code == 400


def test_a_vhost_that_is_not_there_can_be_neither_protected_nor_opened_up(api):
    assert api.post(
        "vhosts/nowhere/deletion/protection"
    ).status_code == api.delete("vhosts/nowhere/deletion/protection").status_code == 404


def test_protection_goes_out_with_the_definitions_and_comes_in_again(api, kept):
    api.post("vhosts/kept/deletion/protection")
    (exported,) = [vhost for vhost in api.get("definitions").json()["vhosts"] if vhost["name"] == "kept"]
    api.delete("vhosts/kept/deletion/protection")
    api.delete("vhosts/kept")

    assert api.post("definitions", {"vhosts": [exported]}).status_code == 204

    assert is_protected(api) and api.delete("vhosts/kept").status_code == 412


def test_protection_is_there_after_a_restart(tmp_path):
    with BrokerProcess(tmp_path / "data", http_port=0) as process:
        api = API(f"http://127.0.0.1:{process.ports['http']}")
        api.put("vhosts/kept", {"protected_from_deletion": True})
        process.stop()
        process.start()
        api = API(f"http://127.0.0.1:{process.ports['http']}")

        assert api.delete("vhosts/kept").status_code == 412
