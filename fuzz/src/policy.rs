//! Admission policies.
use crate::plane::{ADMISSION, create, create_map, with_registry};
use serde_json::{Value, json};

/// Any document is a policy that can be stored and evaluated, or refused. A write that it does not
/// refuse is stored, and every refusal is an answer with a message.
pub fn check(input: &[u8]) {
    let Ok(document) = serde_json::from_slice::<Value>(input) else { return };
    let (resource, bindings, kind) = match document["kind"].as_str() {
        Some("MutatingAdmissionPolicy") => (
            "mutatingadmissionpolicies",
            "mutatingadmissionpolicybindings",
            "MutatingAdmissionPolicyBinding",
        ),
        _ => (
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
            "ValidatingAdmissionPolicyBinding",
        ),
    };
    with_registry(
        |builder| builder,
        async |registry| {
            let written = create(registry, (ADMISSION, resource), "", input.to_vec()).await;
            let policy = match written {
                Ok(policy) => policy,
                Err(error) => {
                    assert!(error.code() >= 400 && !error.0.message.is_empty());
                    return;
                }
            };
            let mut spec = json!({"policyName": policy["metadata"]["name"]});
            if kind.starts_with('V') {
                spec["validationActions"] = json!(["Deny"]);
            }
            let binding = json!({
                "apiVersion": format!("{ADMISSION}/v1"), "kind": kind,
                "metadata": {"name": "all"}, "spec": spec,
            });
            create(registry, (ADMISSION, bindings), "", binding.to_string()).await.unwrap();
            match create_map(registry).await {
                Ok(map) => assert_eq!(map["kind"], "ConfigMap"),
                Err(error) => assert!(error.code() >= 400 && !error.0.message.is_empty()),
            }
        },
    );
}
