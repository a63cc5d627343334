//! Audit policies.
use setpoint_apiserver::{Attributes, Identity, Requested, ResourcePath, Stage, Verb};
use setpoint_audit::Policy;

/// Any text is a policy or refused, the same each time. A policy has one verdict about a request,
/// and a request that it does not record has no stages.
pub fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let policy = match Policy::parse(&text) {
        Ok(policy) => policy,
        Err(error) => {
            let again = Policy::parse(&text).unwrap_err();
            assert_eq!(error.to_string(), again.to_string());
            return;
        }
    };
    let pod = ResourcePath {
        version: "v1".to_owned(),
        resource: "pods".to_owned(),
        namespace: "default".to_owned(),
        name: "a".to_owned(),
        ..ResourcePath::default()
    };
    for requested in [Requested::Unrouted(pod), Requested::Path("/healthz/ping".to_owned())] {
        let identity = Identity::new("jane", ["devs"]);
        let request = Attributes::new(identity.clone(), Verb::Get, requested);
        let verdict = policy.verdict(&identity, &request);
        assert_eq!(verdict, policy.verdict(&identity, &request));
        let stages = [Stage::RequestReceived, Stage::ResponseStarted, Stage::ResponseComplete];
        let n_stages = stages.into_iter().filter(|stage| verdict.has(*stage)).count();
        assert!(n_stages == 0 || verdict.level > setpoint_apiserver::AuditLevel::None);
    }
}
