//! The objects of a fresh control plane: namespaces, priority classes and the `kubernetes` Service.
//!
//! They are created like anyone's, so that they are validated, defaulted and owned as such, and left alone when they are there.
//! RBAC roles come with authorization; configuration maps, service accounts and end points from the controllers that keep them.
use crate::registry::Registry;
use crate::request::{Body, Caller, Format, Target, WriteOptions};
use crate::write::key;
use bytes::Bytes;
use setpoint_object::{ApiError, Reason, Skim};

/// Who creates them.
const MANAGER: &str = "kube-apiserver";

/// (group, version, resource, namespace, object), in the order of creation.
const OBJECTS: [(&str, &str, &str, &str, &str); 7] = [
    ("", "v1", "namespaces", "", r#"{"metadata":{"name":"kube-system"}}"#),
    ("", "v1", "namespaces", "", r#"{"metadata":{"name":"kube-public"}}"#),
    ("", "v1", "namespaces", "", r#"{"metadata":{"name":"kube-node-lease"}}"#),
    ("", "v1", "namespaces", "", r#"{"metadata":{"name":"default"}}"#),
    (
        "scheduling.k8s.io",
        "v1",
        "priorityclasses",
        "",
        r#"{"metadata":{"name":"system-node-critical"},"value":2000001000,"description":"Used for system critical pods that must not be moved from their current node."}"#,
    ),
    (
        "scheduling.k8s.io",
        "v1",
        "priorityclasses",
        "",
        r#"{"metadata":{"name":"system-cluster-critical"},"value":2000000000,"description":"Used for system critical pods that must run in the cluster, but can be moved to another node if necessary."}"#,
    ),
    (
        "",
        "v1",
        "services",
        "default",
        r#"{"metadata":{"name":"kubernetes","labels":{"component":"apiserver","provider":"kubernetes"}},"spec":{"clusterIP":"10.0.0.1","ports":[{"name":"https","port":443,"protocol":"TCP","targetPort":6443}],"sessionAffinity":"None","type":"ClusterIP"}}"#,
    ),
];

/// Creates what is missing.
pub(crate) async fn ensure(registry: &Registry) -> Result<(), ApiError> {
    let catalog = registry.catalog();
    let caller = Caller {
        user: "system:apiserver".to_owned(),
        groups: vec!["system:masters".to_owned()],
        user_agent: MANAGER.to_owned(),
        ..Caller::default()
    };
    for (group, version, resource, namespace, object) in OBJECTS {
        let Some(resource) = catalog.get(group, version, resource) else { continue };
        let name = Skim::of(object.as_bytes()).map_err(ApiError::internal)?.name.into_owned();
        if registry.inner.live(&key(resource, namespace, &name)).await?.is_some() {
            continue;
        }
        let target = Target {
            resource: resource.clone(),
            namespace: namespace.to_owned(),
            name: String::new(),
            subresource: String::new(),
        };
        let body = Body { bytes: Bytes::from_static(object.as_bytes()), format: Format::Json };
        match registry.create(&caller, &target, body, &WriteOptions::default()).await {
            Err(error) if error.reason() != Reason::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
