"""What users of the Python client do, on the server of a kubeconfig. Fails with the first assertion that does not hold."""

import sys

from kubernetes import client, config, dynamic, watch
from kubernetes.client.rest import ApiException

NAMESPACE = "python"
GROUP = "python.orlop.example"


def refused(status, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except ApiException as error:
        assert error.status == status, f"{error.status} is not {status}: {error.body}"
        return error
    raise AssertionError(f"{call.__name__} succeeded")


def config_map(name, **data):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels={"app": "x"}), data=data)


def objects(core):
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=NAMESPACE)))
    made = core.create_namespaced_config_map(NAMESPACE, config_map("a", k="v"))
    assert made.metadata.uid and made.metadata.creation_timestamp
    refused(409, core.create_namespaced_config_map, NAMESPACE, config_map("a"))
    read = core.read_namespaced_config_map("a", NAMESPACE)
    assert read.data == {"k": "v"}
    read.data["k"] = "w"
    core.replace_namespaced_config_map("a", NAMESPACE, read)
    conflict = refused(409, core.replace_namespaced_config_map, "a", NAMESPACE, read)
    assert "the object has been modified" in conflict.body
    # A list of operations is a JSON patch; a dictionary would be a strategic one, so its type is named.
    patched = core.patch_namespaced_config_map(
        "a", NAMESPACE, [{"op": "replace", "path": "/data/k", "value": "patched"}]
    )
    assert patched.data == {"k": "patched"}
    core.create_namespaced_config_map(NAMESPACE, config_map("b"))
    page = core.list_namespaced_config_map(NAMESPACE, limit=1, label_selector="app=x")
    assert [item.metadata.name for item in page.items] == ["a"] and page.metadata._continue
    rest = core.list_namespaced_config_map(NAMESPACE, limit=5, label_selector="app=x", _continue=page.metadata._continue)
    assert [item.metadata.name for item in rest.items] == ["b"]
    refused(404, core.read_namespaced_config_map, "none", NAMESPACE)
    refused(422, core.create_namespaced_config_map, NAMESPACE, config_map("Not_A_Name"))
    core.delete_namespaced_config_map("b", NAMESPACE)
    core.delete_collection_namespaced_config_map(NAMESPACE, label_selector="app=none")


def watches(core):
    version = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version
    for name in ("w1", "w2", "w3"):
        core.create_namespaced_config_map(NAMESPACE, config_map(name))
    seen = []
    first = watch.Watch()
    for event in first.stream(core.list_namespaced_config_map, NAMESPACE, resource_version=version, timeout_seconds=20):
        seen.append((event["type"], event["object"].metadata.name))
        if len(seen) == 2:
            first.stop()
    core.delete_namespaced_config_map("w1", NAMESPACE)
    # The watch goes on where it stopped.
    second = watch.Watch()
    for event in second.stream(
        core.list_namespaced_config_map, NAMESPACE, resource_version=first.resource_version, timeout_seconds=20
    ):
        seen.append((event["type"], event["object"].metadata.name))
        if event["type"] == "DELETED":
            second.stop()
    assert seen == [("ADDED", "w1"), ("ADDED", "w2"), ("ADDED", "w3"), ("DELETED", "w1")], seen
    # A short one ends by itself.
    ended = [event["type"] for event in watch.Watch().stream(core.list_namespaced_config_map, NAMESPACE, timeout_seconds=1)]
    assert "ADDED" in ended


def definition():
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {"size": {"type": "integer", "minimum": 0}, "replicas": {"type": "integer"}}},
            "status": {"type": "object", "properties": {"phase": {"type": "string"}, "replicas": {"type": "integer"}}},
        },
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"snakes.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": "snakes", "kind": "Snake", "listKind": "SnakeList", "singular": "snake"},
            "versions": [version],
        },
    }


def custom(api_client):
    extensions = client.ApiextensionsV1Api(api_client)
    extensions.create_custom_resource_definition(definition())
    following = watch.Watch()
    for event in following.stream(extensions.list_custom_resource_definition, timeout_seconds=20):
        found = event["object"]
        conditions = {one.type: one.status for one in (found.status.conditions or [])} if found.status else {}
        if found.metadata.name == f"snakes.{GROUP}" and conditions.get("Established") == "True":
            following.stop()
    api = client.CustomObjectsApi(api_client)
    place = (GROUP, "v1", NAMESPACE, "snakes")
    snake = {"apiVersion": f"{GROUP}/v1", "kind": "Snake", "metadata": {"name": "s"}, "spec": {"size": 1, "replicas": 1}}
    eventually(lambda: api.list_namespaced_custom_object(*place))
    made = api.create_namespaced_custom_object(*place, snake)
    assert made["metadata"]["generation"] == 1
    invalid = refused(422, api.create_namespaced_custom_object, *place, {**snake, "metadata": {"name": "bad"}, "spec": {"size": -1}})
    assert "spec.size" in invalid.body
    # Here the client sends a merge patch.
    api.patch_namespaced_custom_object(*place, "s", {"spec": {"size": 2}})
    api.patch_namespaced_custom_object_status(*place, "s", {"status": {"phase": "Fine", "replicas": 1}})
    scale = api.get_namespaced_custom_object_scale(*place, "s")
    assert scale["kind"] == "Scale" and scale["spec"]["replicas"] == 1, scale
    read = api.get_namespaced_custom_object(*place, "s")
    assert read["status"]["phase"] == "Fine" and read["metadata"]["generation"] == 2, read
    assert len(api.list_cluster_custom_object(GROUP, "v1", "snakes")["items"]) == 1
    api.delete_namespaced_custom_object(*place, "s")
    refused(404, api.get_namespaced_custom_object, *place, "s")


def eventually(call):
    """A definition is served a moment after it is established; each question takes some milliseconds."""
    for _ in range(1000):
        try:
            return call()
        except ApiException as error:
            assert error.status == 404, error
    raise AssertionError("never served")


def dynamically(api_client):
    found = dynamic.DynamicClient(api_client)
    snakes = found.resources.get(api_version=f"{GROUP}/v1", kind="Snake")
    maps = found.resources.get(api_version="v1", kind="ConfigMap")
    made = snakes.create(
        {"apiVersion": f"{GROUP}/v1", "kind": "Snake", "metadata": {"name": "d"}, "spec": {"size": 1}}, namespace=NAMESPACE
    )
    patched = snakes.patch(
        name="d", namespace=NAMESPACE, body={"spec": {"size": 3}}, content_type="application/merge-patch+json"
    )
    assert patched.spec.size == 3 and patched.metadata.uid == made.metadata.uid
    assert [item.metadata.name for item in snakes.get(namespace=NAMESPACE).items] == ["d"]
    assert maps.get(name="a", namespace=NAMESPACE).data.k == "patched"
    for event in snakes.watch(namespace=NAMESPACE, timeout=5):
        assert event["type"] == "ADDED" and event["object"].metadata.name == "d"
        break
    snakes.delete(name="d", namespace=NAMESPACE)


def main():
    config.load_kube_config(sys.argv[1])
    with client.ApiClient() as api_client:
        core = client.CoreV1Api(api_client)
        version = client.VersionApi(api_client).get_code()
        assert version.major == "1", version
        objects(core)
        watches(core)
        custom(api_client)
        dynamically(api_client)


main()
