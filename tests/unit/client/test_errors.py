"""Errors of requests: one sentence with the problem and the fix."""

import pytest

from perdure.client.cluster import Cluster
from perdure.client.errors import ClientError, NoNamespaceError, UnreachableError
from perdure.client.requests import Requests
from perdure.kube.access import Access
from perdure.kube.light import LightClient
from support.apiserver import ApiServer, items

RUNS = "/apis/perdure.dev/v1alpha1/namespaces/shop/workflowruns"


@pytest.mark.parametrize(
    ("status", "message", "want"),
    [
        (404, 'workflowruns.perdure.dev "x" not found', "no WorkflowRun `x` in namespace `shop`; list those"),
        (404, "404 page not found", "Perdure is not installed in it; run `make install`"),
        (401, "Unauthorized", "log in again"),
        (403, 'workflowruns "x" is forbidden', "ask your administrator for the role `view`"),
        (500, "oh", "is not available (500: oh); try again"),
        (400, "bad", "refused the request: bad"),
    ],
)
async def test_an_error_of_the_api_server_is_one_sentence_with_a_remedy(
    server: ApiServer, cluster: Cluster, status: int, message: str, want: str
) -> None:
    server.answers[f"{RUNS}/x"] = (status, {"reason": "Any", "message": message})
    with pytest.raises(ClientError) as raised:
        await cluster.runs.find("x", None)
    assert want in str(raised.value)
    assert "\n" not in str(raised.value)


async def test_an_unreachable_api_server_is_named() -> None:
    async with LightClient.open(Access(server="http://127.0.0.1:9"), user_agent="test", connections=1) as client:
        with pytest.raises(UnreachableError, match="127\\.0\\.0\\.1:9 does not respond"):
            await Cluster(Requests(client, "shop", "perdure")).list("workflowruns")


async def test_an_empty_list_of_a_missing_namespace_is_an_error(server: ApiServer, cluster: Cluster) -> None:
    server.answers["/apis/perdure.dev/v1alpha1/namespaces/nope/workflowruns"] = items()
    with pytest.raises(NoNamespaceError, match="there is no namespace `nope`; choose another one with -n"):
        await cluster.within("nope").list("workflowruns")


@pytest.mark.parametrize("status", [403, 500])
async def test_an_unreadable_namespace_is_assumed_to_exist(server: ApiServer, cluster: Cluster, status: int) -> None:
    server.answers[RUNS] = items()
    server.answers["/api/v1/namespaces/shop"] = (status, {"message": "no"})
    assert await cluster.list("workflowruns") == []
