//! Which change led to a write of endpoints.

use super::Service;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use setpoint_runtime::Request;
use std::collections::BTreeMap;

/// The times of the last changes of Services and their pods, as they were seen. Entries go with
/// the Service.
#[derive(Debug, Default)]
pub(super) struct Triggers(Mutex<BTreeMap<Request, Seen>>);

#[derive(Debug, Clone, Default)]
struct Seen {
    service: Option<jiff::Timestamp>,
    pods: BTreeMap<String, jiff::Timestamp>,
}

impl Triggers {
    /// The time of the earliest change since the last pass, in RFC 3339; `None` if only something
    /// else changed. A pod changes when its readiness does, a Service when it is created.
    pub(super) fn since_last(
        &self,
        request: &Request,
        service: &Service,
        pods: &[&Pod],
    ) -> Option<String> {
        let of_pod = |pod: &&Pod| {
            let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
            let ready = conditions.find(|condition| condition.type_ == "Ready")?;
            Some((pod.metadata.name.clone()?, ready.last_transition_time.as_ref()?.0))
        };
        let seen = Seen {
            service: service.metadata.creation_timestamp.as_ref().map(|time| time.0),
            pods: pods.iter().filter_map(of_pod).collect(),
        };
        let last = self.0.lock().insert(request.clone(), seen.clone()).unwrap_or_default();
        let changed =
            seen.pods.iter().filter(|(pod, at)| last.pods.get(*pod).is_none_or(|l| l < at));
        let changed = changed.map(|(_, at)| *at);
        let service = seen.service.filter(|at| last.service.is_none_or(|last| last < *at));
        changed.chain(service).min().map(|at| at.to_string())
    }

    pub(super) fn forget(&self, request: &Request) {
        self.0.lock().remove(request);
    }
}
