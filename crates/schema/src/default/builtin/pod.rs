//! Pods and pod templates.
use super::fill::{Fill, Object, empty};
use super::{container, volume};
use serde_json::Value;

/// Pod.
pub(super) fn pod(object: &mut Object) {
    let Some(pod) = object.object("spec") else { return };
    spec(pod);
    // Only Pods, not templates: these would change a workload that an older client wrote.
    pod.absent("enableServiceLinks", true);
    let host_network = pod.get("hostNetwork") == Some(&Value::Bool(true));
    for list in ["containers", "initContainers"] {
        for container in pod.each(list) {
            container::requests_from_limits(container);
            if host_network {
                container::host_ports(container);
            }
        }
    }
}

/// An object with a member `template`, or a PodTemplate.
pub(super) fn template(owner: &mut Object) {
    if let Some(pod) = owner.object("template").and_then(|template| template.object("spec")) {
        spec(pod);
    }
}

/// PodSpec.
fn spec(pod: &mut Object) {
    pod.absent("dnsPolicy", "ClusterFirst");
    pod.absent("restartPolicy", "Always");
    pod.absent("securityContext", empty());
    pod.absent("terminationGracePeriodSeconds", 30);
    pod.absent("schedulerName", "default-scheduler");
    // `serviceAccount` is the older name of `serviceAccountName`: both are shown, the newer one decides.
    if let Some(name) = pod.get("serviceAccountName").cloned() {
        pod.insert("serviceAccount".to_owned(), name);
    } else if let Some(name) = pod.get("serviceAccount").cloned() {
        pod.insert("serviceAccountName".to_owned(), name);
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        pod.each(list).for_each(container::container);
    }
    pod.each("volumes").for_each(volume::volume);
}
