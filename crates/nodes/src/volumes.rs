//! Volume mounts that a kubelet refuses.

use crate::kubelet::{items, text};
use serde_json::Value;
use setpoint_object::meta::ObjectExt;

/// Why a container's mounts cannot be prepared: a `subPathExpr` that is no path in the volume.
pub(crate) fn fault(pod: &Value, container: &Value) -> Option<String> {
    for mount in items(&container["volumeMounts"]) {
        let Some(expression) = mount["subPathExpr"].as_str() else { continue };
        let path = match expand(pod, container, expression) {
            Ok(path) => path,
            Err(name) => return Some(format!("missing value for \"{name}\"")),
        };
        if path.starts_with('/') {
            return Some(format!("subPath \"{path}\" must not be an absolute path"));
        }
        if path.split('/').any(|part| part == "..") {
            return Some(format!("subPath \"{path}\" must not contain \"..\""));
        }
        if path.contains('`') {
            return Some(format!("subPath \"{path}\" is invalid"));
        }
    }
    None
}

/// Replaces `$(NAME)`.
///
/// # Errors
///
/// The name of a variable that the container does not have.
fn expand(pod: &Value, container: &Value, expression: &str) -> Result<String, String> {
    let (mut path, mut rest) = (String::new(), expression);
    while let Some((before, after)) = rest.split_once("$(") {
        let Some((name, more)) = after.split_once(')') else { break };
        path.push_str(before);
        let value = items(&container["env"])
            .iter()
            .find(|variable| variable["name"] == name)
            .ok_or_else(|| name.to_owned())?;
        path.push_str(&value_of(pod, value));
        rest = more;
    }
    path.push_str(rest);
    Ok(path)
}

/// The value of a variable, as far as the pod tells.
fn value_of(pod: &Value, variable: &Value) -> String {
    let Some(field) = variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() else {
        return text(&variable["value"]).to_owned();
    };
    let keyed = field.strip_suffix("']").and_then(|field| field.split_once("['"));
    match (field, keyed) {
        ("metadata.name", _) => pod.name().to_owned(),
        ("metadata.namespace", _) => pod.namespace().to_owned(),
        ("metadata.uid", _) => pod.uid().to_owned(),
        ("spec.nodeName", _) => text(&pod["spec"]["nodeName"]).to_owned(),
        (_, Some((map @ ("metadata.annotations" | "metadata.labels"), key))) => {
            let member = map.trim_start_matches("metadata.");
            text(&pod["metadata"][member][key]).to_owned()
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sub_paths_must_stay_in_their_volume() {
        let pod = json!({"metadata": {"name": "p", "annotations": {"path": "/up"}}});
        let fault = |expression: &str, value: Value| {
            let container = json!({"env": [value], "volumeMounts": [{"subPathExpr": expression}]});
            fault(&pod, &container).is_some()
        };
        let annotation = json!({"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['path']"}}});
        let name = json!({"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}});
        assert!(!fault("$(A)/x", name.clone()));
        assert!(fault("$(A)", annotation));
        assert!(fault("$(B)", name));
        assert!(fault("$(A)", json!({"name": "A", "value": "a/../b"})));
        assert!(fault("$(A)", json!({"name": "A", "value": "`x`"})));
    }
}
