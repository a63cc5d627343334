//! Protection of PersistentVolumeClaims.
//!
//! Admission adds the finalizer to every claim; one that has lost it gets it here.
//!
//! A pod without a node does not count, because no kubelet starts a pod whose claim is being
//! deleted. The rules are those of kube-controller-manager's `pvc-protection-controller`.

use super::finalizer::{protect, release, wrongly_protected};
use super::waiting::{Pass, Protected, Waiting};
use crate::api::{Api, RequestError};
use crate::boxed::Boxed;
use crate::setup::Setup;
use crate::workload::ephemeral_volume::claim_name;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube_core::metadata::PartialObjectMeta;
use serde_json::Value;
use setpoint_informer::{Event, Object};
use setpoint_object::meta::ObjectExt;
use setpoint_runtime::{BoxError, Controller, Watch};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const NAME: &str = "pvc-protection-controller";
const FINALIZER: &str = "kubernetes.io/pvc-protection";

pub(super) fn controller(setup: &Setup) -> Result<Controller, BoxError> {
    let waiting = Arc::new(Waiting::default());
    let pass = Pass { api: setup.api(NAME), waiting: waiting.clone(), protected: Claims };
    let pods = waiting.clone();
    let controller = Controller::builder(NAME)
        .maps(
            Watch::<PersistentVolumeClaim>::metadata().filter(wrongly_protected(FINALIZER)),
            move |claim: &Object<PartialObjectMeta<PersistentVolumeClaim>>| waiting.add(claim),
        )
        .watches(Watch::<Pod>::metadata(), move |event: &Event<_>| pods.request(event, ends))
        .sync_timeout(None)
        .build(Boxed(pass))?;
    Ok(controller)
}

/// Whether a pod is being deleted, or is gone.
fn ends(event: &Event<PartialObjectMeta<Pod>>) -> bool {
    matches!(event, Event::Deleted { .. })
        || event.object().is_some_and(|pod| !pod.skim().deletion_timestamp.is_empty())
}

struct Claims;

impl Protected for Claims {
    type Pod = PartialObjectMeta<Pod>;
    type InUse = Used;

    fn path(&self, namespace: &str, name: &str) -> String {
        format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}")
    }

    fn add(&self, used: &mut Used, pod: Value) -> Result<bool, serde_json::Error> {
        Ok(used.add_pod(&pod))
    }

    fn is_in_use(&self, used: &Used, claim: &Value) -> bool {
        used.by_name.contains(claim.name())
            || used.has_ephemeral(claim.name(), controller_of(claim))
    }

    async fn release(&self, api: &Api, path: &str, claim: Value) -> Result<(), RequestError> {
        release(api, path, &claim, FINALIZER).await
    }

    async fn protect(&self, api: &Api, path: &str, claim: &Value) -> Result<(), RequestError> {
        protect(api, path, claim, FINALIZER).await
    }
}

/// The claims that the pods of a namespace use.
#[derive(Debug, Default)]
struct Used {
    /// Claims that pods name.
    by_name: BTreeSet<String>,
    /// Claims of generic ephemeral volumes: the name, and the uid of the pod, which is the claim's
    /// controller.
    ephemeral: BTreeMap<String, BTreeSet<String>>,
}

impl Used {
    fn has_ephemeral(&self, name: &str, pod: &str) -> bool {
        self.ephemeral.get(name).is_some_and(|pods| pods.contains(pod))
    }

    /// Returns whether the pod has volumes of claims.
    fn add_pod(&mut self, pod: &Value) -> bool {
        if pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty() {
            return false;
        }
        // The pod has been shut down and only waits for its removal, perhaps because of this claim.
        let is_shut_down = !pod.deletion_timestamp().is_empty()
            && pod["metadata"]["deletionGracePeriodSeconds"] == 0;
        let mut uses = false;
        for volume in pod["spec"]["volumes"].as_array().into_iter().flatten() {
            let is_ephemeral = volume["ephemeral"].is_object();
            uses |= is_ephemeral || volume["persistentVolumeClaim"].is_object();
            if let Some(claim) = volume["persistentVolumeClaim"]["claimName"].as_str() {
                self.by_name.insert(claim.to_owned());
            }
            if !is_shut_down && is_ephemeral {
                let volume = volume["name"].as_str().unwrap_or_default();
                let claim = claim_name(pod.name(), volume);
                self.ephemeral.entry(claim).or_default().insert(pod.uid().to_owned());
            }
        }
        uses
    }
}

/// The uid of an object's controller; empty if it has none.
fn controller_of(object: &Value) -> &str {
    let owners = object["metadata"]["ownerReferences"].as_array();
    let controller = owners.into_iter().flatten().find(|owner| owner["controller"] == true);
    controller.and_then(|owner| owner["uid"].as_str()).unwrap_or_default()
}
