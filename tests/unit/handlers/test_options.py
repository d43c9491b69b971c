"""Options of the operator in environment variables."""

from datetime import timedelta

import pytest

from perdure.controller.capacity import CapacitySettings, share_of_memory
from perdure.controller.upgrades import UpgradeSettings
from perdure.controller.workflows.revisions import RevisionRetention
from perdure.handlers.assembly import OperatorOptions
from perdure.runtime.retention import Limits

CAPACITY = CapacitySettings(memory_in_use=share_of_memory)
UPGRADES = UpgradeSettings(record="perdure-state-version", hold_back=timedelta(days=1))


def test_an_empty_environment_gives_the_defaults() -> None:
    options = OperatorOptions.from_environment({"POD_NAME": "perdure-0"})
    assert options == OperatorOptions(instance="perdure-0", upgrades=UPGRADES, capacity=CAPACITY)
    assert options.namespaces == ()
    assert options.port == 8080
    assert options.log_level == "info"
    assert options.activity_identity == "perdure-activity"


def test_environment_variables_set_the_options() -> None:
    options = OperatorOptions.from_environment(
        {
            "PERDURE_WATCH_NAMESPACES": "shop,bank",
            "PERDURE_EXCLUDE_NAMESPACES": "team-*",
            "PERDURE_HTTP_PORT": "9090",
            "PERDURE_LOG_LEVEL": "debug",
            "PERDURE_WORKERS": "8",
            "PERDURE_ACTIVITY_SERVICE_ACCOUNT": "worker",
            "PERDURE_IMAGE_PULL_SECRETS": "one, two",
            "PERDURE_RUN_AS_USER": "None",
            "PERDURE_FINISHED_RUNS": "0",
            "PERDURE_FINISHED_MIB": "64",
            "PERDURE_ALL_FINISHED_RUNS": "7",
            "PERDURE_ALL_FINISHED_MIB": "0",
            "PERDURE_OPEN_RUNS": "0",
            "PERDURE_REVISION_HISTORY": "3",
            "PERDURE_UNUSED_REVISION_SECONDS": "0",
            "PERDURE_FLEET": "perdure",
            "PERDURE_LEASE_SECONDS": "15",
            "PERDURE_ROUTINE_EVENTS": "true",
            "PERDURE_UPGRADE_RECORD": "shop-state-version",
            "PERDURE_UPGRADE_HOLD_BACK_SECONDS": "0",
            "POD_NAME": "perdure-0",
            "POD_IP": "10.0.0.7",
            "POD_UID": "1234",
            "PATH": "/bin",
        }
    )
    assert options == OperatorOptions(
        capacity=CapacitySettings(open_runs=0, memory_in_use=share_of_memory),
        namespaces=("shop", "bank"),
        excluded=("team-*",),
        port=9090,
        log_level="debug",
        routine_events=True,
        workers=8,
        activity_identity="worker",
        pull_secrets=("one", "two"),
        run_as_user=None,
        finished=Limits(runs=0, size=64 * 1024 * 1024, all_runs=7, all_size=0),
        revisions=RevisionRetention(history=3, unused_for=timedelta(0)),
        instance="perdure-0",
        fleet="perdure",
        pod_uid="1234",
        lease_seconds=15,
        address="10.0.0.7",
        upgrades=UpgradeSettings(record="shop-state-version", hold_back=timedelta(0)),
    )


def test_operators_with_frontends_of_their_own_are_a_fleet_that_they_reach() -> None:
    user = {"PERDURE_FRONTEND_USER": "system:serviceaccount:perdure:perdure-frontend"}
    with pytest.raises(ValueError, match="PERDURE_FRONTEND_USER requires PERDURE_FLEET"):
        OperatorOptions.from_environment(user)
    fleet = {**user, "PERDURE_FLEET": "perdure", "POD_IP": "10.0.0.7"}
    with pytest.raises(ValueError, match="requires PERDURE_PEER_ADDRESS and POD_IP"):
        OperatorOptions.from_environment(fleet)
    options = OperatorOptions.from_environment({**fleet, "PERDURE_PEER_ADDRESS": "[::]:7234"})
    assert (options.address, options.peer_address, options.temporal_address) == ("10.0.0.7:7234", "[::]:7234", "")


def test_a_fleet_with_a_frontend_requires_peer_addresses() -> None:
    with pytest.raises(
        ValueError, match="PERDURE_FLEET with PERDURE_TEMPORAL_ADDRESS requires PERDURE_PEER_ADDRESS and POD_IP"
    ):
        OperatorOptions.from_environment({"PERDURE_FLEET": "perdure", "PERDURE_TEMPORAL_ADDRESS": "0.0.0.0:7233"})


def test_empty_variables_count_as_unset() -> None:
    names = (
        "WATCH_NAMESPACES",
        "EXCLUDE_NAMESPACES",
        "HTTP_PORT",
        "LOG_LEVEL",
        "ACTIVITY_SERVICE_ACCOUNT",
        "RUN_AS_USER",
    )
    empty = {f"PERDURE_{name}": "" for name in names}
    assert OperatorOptions.from_environment({**empty, "POD_NAME": "p"}) == OperatorOptions(
        instance="p", upgrades=UPGRADES, capacity=CAPACITY
    )


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("shop", ("shop",)),
        ("shop, bank ,", ("shop", "bank")),
        (" ", ()),
        (",", ()),
    ],
    ids=["one", "with spaces", "a space", "a comma"],
)
def test_namespaces_are_separated_by_commas(text: str, want: tuple[str, ...]) -> None:
    assert OperatorOptions.from_environment({"PERDURE_WATCH_NAMESPACES": text}).namespaces == want


def test_outside_of_a_pod_the_instance_is_the_host_name() -> None:
    assert OperatorOptions.from_environment({}).instance


def test_a_port_that_is_not_a_number_is_rejected() -> None:
    with pytest.raises(ValueError, match="http"):
        OperatorOptions.from_environment({"PERDURE_HTTP_PORT": "http"})
