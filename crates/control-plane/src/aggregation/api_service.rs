//! APIService objects as the aggregation reads them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use setpoint_apiserver::Registration;
use setpoint_object::GroupVersion;
use setpoint_webhook_client::{Service, Trust};

/// Default port of a service.
const HTTPS_PORT: u16 = 443;

/// One APIService.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ApiService {
    /// `<version>.<group>`.
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) group_version: GroupVersion,
    pub(super) group_priority: u32,
    pub(super) version_priority: u32,
    /// Where the group version is served; `None`: here.
    pub(super) target: Option<Target>,
    /// `status.conditions`.
    pub(super) conditions: Vec<Value>,
}

/// A server, and whom to trust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) service: Service,
    pub(super) trust: Trust,
}

/// The members that are read. The others, of which managed fields are most of an object, are
/// skipped: every control plane reads some thirty objects at its start.
#[derive(Deserialize)]
struct Document {
    metadata: Metadata,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    uid: String,
}

impl ApiService {
    /// Reads an object; `None` if it is not one.
    pub(super) fn parse(object: &[u8]) -> Option<Self> {
        let Document { metadata, spec, mut status } = serde_json::from_slice(object).ok()?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (group, version) = (text(&spec["group"]), text(&spec["version"]));
        // An object of another server may have any number.
        let number = |member: &str| {
            let number = spec[member].as_u64().and_then(|number| u32::try_from(number).ok());
            number.unwrap_or_default().max(1)
        };
        let service = &spec["service"];
        // These groups are served here, whatever their objects say: without them, nothing could
        // be undone.
        let is_own = group.is_empty() || group == "apiregistration.k8s.io";
        let target = (service.is_object() && !is_own).then(|| {
            let port = service["port"].as_u64().and_then(|port| u16::try_from(port).ok());
            let service = Service {
                namespace: text(&service["namespace"]),
                name: text(&service["name"]),
                port: port.unwrap_or(HTTPS_PORT),
            };
            let bundle = text(&spec["caBundle"]);
            let trust = match (spec["insecureSkipTLSVerify"] == true, bundle.is_empty()) {
                (true, _) => Trust::Anyone,
                (false, true) => Trust::System,
                // What cannot be decoded is no bundle: an error of each request.
                (false, false) => {
                    Trust::Bundle(STANDARD.decode(bundle).map(Bytes::from).unwrap_or_default())
                }
            };
            Target { service, trust }
        });
        let conditions = match status.get_mut("conditions").map(Value::take) {
            Some(Value::Array(conditions)) => conditions,
            _ => Vec::new(),
        };
        Some(Self {
            name: metadata.name,
            uid: metadata.uid,
            group_version: GroupVersion::new(group, version),
            group_priority: number("groupPriorityMinimum"),
            version_priority: number("versionPriority"),
            target,
            conditions,
        })
    }

    /// Its position in discovery.
    pub(super) fn registration(&self) -> Registration {
        Registration {
            group_version: self.group_version.clone(),
            group_priority: self.group_priority,
            version_priority: self.version_priority,
        }
    }

    /// Its condition `Available`.
    pub(super) fn available(&self) -> Option<&Value> {
        self.conditions.iter().find(|condition| condition["type"] == "Available")
    }

    /// Whether its requests are forwarded.
    pub(super) fn is_available(&self) -> bool {
        self.available().is_some_and(|condition| condition["status"] == "True")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn groups_that_undo_it_are_always_served_here() {
        for (group, is_remote) in [("", false), ("apiregistration.k8s.io", false), ("apps", true)] {
            let service = json!({"namespace": "n", "name": "s"});
            let spec = json!({"group": group, "version": "v1", "service": service});
            let object = json!({"metadata": {"name": "x"}, "spec": spec}).to_string();
            let parsed = ApiService::parse(object.as_bytes()).unwrap();
            assert_eq!(parsed.target.is_some(), is_remote, "{group}");
        }
    }

    #[test]
    fn trust_follows_the_bundle_and_the_switch() {
        let of = |spec: Value| {
            let mut object = json!({"metadata": {"name": "v1.ex.io"}, "spec": spec});
            object["spec"]["group"] = "ex.io".into();
            object["spec"]["service"] = json!({"namespace": "n", "name": "s"});
            let parsed = ApiService::parse(object.to_string().as_bytes()).unwrap();
            parsed.target.unwrap()
        };
        assert_eq!(of(json!({})).trust, Trust::System);
        assert_eq!(of(json!({})).service.port, 443);
        assert_eq!(of(json!({"insecureSkipTLSVerify": true})).trust, Trust::Anyone);
        assert_eq!(of(json!({"caBundle": "eA=="})).trust, Trust::Bundle(Bytes::from("x")));
        assert_eq!(of(json!({"caBundle": "%"})).trust, Trust::Bundle(Bytes::new()));
    }
}
