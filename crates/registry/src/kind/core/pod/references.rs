//! Which objects of the API a pod refers to.
use super::secrets::refers_to_secrets;
use crate::kind::{list, text};
use serde_json::Value;

/// Sources of volumes that refer to no object.
const SELF_CONTAINED: [&str; 22] = [
    "awsElasticBlockStore",
    "azureDisk",
    "cephfs",
    "cinder",
    "downwardAPI",
    "emptyDir",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];
/// Sources of volumes that refer to objects, with the text for them.
const REFERRING: [(&str, &str); 7] = [
    ("configMap", "configmaps (via configmap volumes)"),
    ("secret", "secrets (via secret volumes)"),
    ("csi", "csidrivers (via CSI volumes)"),
    ("glusterfs", "endpoints (via glusterFS volumes)"),
    ("persistentVolumeClaim", "persistentvolumeclaims"),
    ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
    ("azureFile", "secrets (via azureFile volumes)"),
];
/// The same for the sources of projected volumes.
const PROJECTED: [(&str, &str); 5] = [
    ("configMap", "configmaps (via projected volumes)"),
    ("secret", "secrets (via projected volumes)"),
    ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
    ("clusterTrustBundle", "clustertrustbundles"),
    ("podCertificate", "podcertificates"),
];

/// The first resource whose objects a pod's spec refers to, besides its node; `None`: none.
///
/// # Errors
///
/// A volume has a source that is not known.
pub(crate) fn api_object(spec: &Value) -> Result<Option<&'static str>, String> {
    if !text(spec, "serviceAccountName").is_empty() || !text(spec, "serviceAccount").is_empty() {
        return Ok(Some("serviceaccounts"));
    }
    if spec.as_object().is_some_and(refers_to_secrets) {
        return Ok(Some("secrets"));
    }
    if refers_to_config_maps(spec) {
        return Ok(Some("configmaps"));
    }
    if !list(spec, "resourceClaims").is_empty() {
        return Ok(Some("resourceclaims"));
    }
    for volume in list(spec, "volumes") {
        if let Some(object) = of_volume(volume)? {
            return Ok(Some(object));
        }
    }
    Ok(None)
}

fn refers_to_config_maps(spec: &Value) -> bool {
    let is_named = |source: &Value| !text(source, "name").is_empty();
    let of_container = |container: &Value| {
        list(container, "envFrom").iter().any(|source| is_named(&source["configMapRef"]))
            || list(container, "env")
                .iter()
                .any(|variable| is_named(&variable["valueFrom"]["configMapKeyRef"]))
    };
    let of_volume = |volume: &Value| {
        let projected = list(&volume["projected"], "sources");
        is_named(&volume["configMap"])
            || projected.iter().any(|source| is_named(&source["configMap"]))
    };
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    lists.iter().flat_map(|name| list(spec, name)).any(of_container)
        || list(spec, "volumes").iter().any(of_volume)
}

fn of_volume(volume: &Value) -> Result<Option<&'static str>, String> {
    let find = |value: &Value, known: &[(&str, &'static str)]| {
        known.iter().find(|(source, _)| value[*source].is_object()).map(|(_, shown)| *shown)
    };
    if SELF_CONTAINED.iter().any(|source| volume[*source].is_object()) {
        return Ok(None);
    }
    if let Some(shown) = find(volume, &REFERRING) {
        return Ok(Some(shown));
    }
    let name = setpoint_object::field::quote(text(volume, "name"));
    if !volume["projected"].is_object() {
        return Err(format!("unknown volume type for volume  {name}"));
    }
    for source in list(&volume["projected"], "sources") {
        if let Some(shown) = find(source, &PROJECTED) {
            return Ok(Some(shown));
        }
        if !source["downwardAPI"].is_object() {
            return Err(format!("unknown source for projected volume {name}"));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_reference_is_found() {
        let container = |member: &str, value: Value| json!({"containers": [{member: value}]});
        let volume = |source: Value| {
            let mut volume = source;
            volume["name"] = "v".into();
            json!({"volumes": [volume]})
        };
        let projected = |source: Value| volume(json!({"projected": {"sources": [source]}}));
        for (spec, expected) in [
            (json!({}), Ok(None)),
            (volume(json!({"hostPath": {"path": "/"}})), Ok(None)),
            (projected(json!({"downwardAPI": {}})), Ok(None)),
            (json!({"serviceAccountName": "a"}), Ok(Some("serviceaccounts"))),
            (json!({"serviceAccount": "a"}), Ok(Some("serviceaccounts"))),
            (json!({"imagePullSecrets": [{"name": "a"}]}), Ok(Some("secrets"))),
            (json!({"resourceClaims": [{"name": "a"}]}), Ok(Some("resourceclaims"))),
            (
                container("envFrom", json!([{"configMapRef": {"name": "a"}}])),
                Ok(Some("configmaps")),
            ),
            (
                container("env", json!([{"valueFrom": {"configMapKeyRef": {"name": "a"}}}])),
                Ok(Some("configmaps")),
            ),
            (volume(json!({"configMap": {"name": "a"}})), Ok(Some("configmaps"))),
            (projected(json!({"configMap": {"name": "a"}})), Ok(Some("configmaps"))),
            (volume(json!({"csi": {"driver": "d"}})), Ok(Some("csidrivers (via CSI volumes)"))),
            (
                volume(json!({"persistentVolumeClaim": {"claimName": "a"}})),
                Ok(Some("persistentvolumeclaims")),
            ),
            (
                projected(json!({"serviceAccountToken": {}})),
                Ok(Some("serviceaccounts (via projected volumes)")),
            ),
            (volume(json!({})), Err("unknown volume type for volume  \"v\"".to_owned())),
            (projected(json!({})), Err("unknown source for projected volume \"v\"".to_owned())),
        ] {
            assert_eq!(api_object(&spec), expected, "{spec}");
        }
    }
}
