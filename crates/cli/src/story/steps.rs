//! The steps of the story, as data.

use kube_client::Client;
use network::api::CRD_YAML;
use serde_json::Value;

/// The namespace of the story's objects.
pub const NAMESPACE: &str = "default";
/// The name of the story's Network.
pub const NETWORK: &str = "example-network";

/// The field manager of the story's writes.
const FIELD_MANAGER: &str = "setpoint-demo";

/// One step.
pub(super) struct Step {
    pub(super) title: &'static str,
    pub(super) declared: &'static str,
    pub(super) act: Act,
    pub(super) expected: &'static str,
    /// Whether the step settles only while the controller reconciles.
    pub(super) needs_controller: bool,
}

/// The action of a step, which also determines what is observed afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// None: the controller has been started.
    Start,
    /// Applies the CRD.
    Define,
    /// Applies the Network.
    Apply,
    /// Deletes the Network.
    Delete,
}

pub(super) const STEPS: &[Step] = &[
    Step {
        title: "The Network controller starts before the type Network exists",
        declared: "",
        act: Act::Start,
        expected: "the server could not find the requested resource",
        needs_controller: false,
    },
    Step {
        title: "The type is defined, and the controller recovers by itself",
        declared: CRD_YAML,
        act: Act::Define,
        expected: "NamesAccepted=True NoConflicts\nEstablished=True InitialNamesAccepted\nKubernetesAPIApprovalPolicyConformant=False UnapprovedAnnotation",
        needs_controller: true,
    },
    Step {
        title: "A network is declared",
        declared: "apiVersion: samplecrd.k8s.io/v1\nkind: Network\nmetadata:\n  name: example-network\nspec:\n  cidr: 192.168.0.0/16\n  gateway: 192.168.0.1\n",
        act: Act::Apply,
        expected: "generation 1, observed 1: 192.168.0.0/16 with gateway 192.168.0.1 on registry/<uid>\n\
            Ready=True Synced: 192.168.0.0/16 with gateway 192.168.0.1 is registry/<uid>\n\
            event Normal Synced: 192.168.0.0/16 with gateway 192.168.0.1 is registry/<uid>",
        needs_controller: true,
    },
    Step {
        title: "It is edited to an invalid spec",
        declared: "apiVersion: samplecrd.k8s.io/v1\nkind: Network\nmetadata:\n  name: example-network\nspec:\n  cidr: 192.168.1.0/16\n  gateway: 192.168.1.1\n",
        act: Act::Apply,
        expected: "generation 2, observed 2: 192.168.0.0/16 with gateway 192.168.0.1 on registry/<uid>\n\
            Ready=False InvalidSpec: 192.168.1.0/16 has host bits set: 192.168.1.0 lies inside 192.168.0.0/16; write 192.168.0.0/16, or 192.168.1.0/24 for the network that starts at 192.168.1.0\n\
            event Warning InvalidSpec: 192.168.1.0/16 has host bits set: 192.168.1.0 lies inside 192.168.0.0/16; write 192.168.0.0/16, or 192.168.1.0/24 for the network that starts at 192.168.1.0",
        needs_controller: true,
    },
    Step {
        title: "It is edited to a valid spec",
        declared: "apiVersion: samplecrd.k8s.io/v1\nkind: Network\nmetadata:\n  name: example-network\nspec:\n  cidr: 192.168.1.0/24\n  gateway: 192.168.1.1\n",
        act: Act::Apply,
        expected: "generation 3, observed 3: 192.168.1.0/24 with gateway 192.168.1.1 on registry/<uid>\n\
            Ready=True Synced: 192.168.1.0/24 with gateway 192.168.1.1 is registry/<uid>\n\
            event Normal Synced: 192.168.1.0/24 with gateway 192.168.1.1 is registry/<uid>",
        needs_controller: true,
    },
    Step {
        title: "It is deleted, and its addresses are free again",
        declared: "",
        act: Act::Delete,
        expected: "gone",
        needs_controller: true,
    },
];

/// Sends the request of a step. May be repeated.
pub(super) async fn declare(step: &Step, client: &Client) -> Result<(), kube_client::Error> {
    match step.act {
        Act::Start => Ok(()),
        Act::Define => apply(client, CRD_PATH, step.declared).await,
        Act::Apply => apply(client, &network_path(), step.declared).await,
        Act::Delete => {
            let request = http::Request::delete(network_path())
                .body(Vec::new())
                .map_err(kube_client::Error::HttpError)?;
            client.request::<Value>(request).await.map(drop)
        }
    }
}

pub(super) const CRD_PATH: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/networks.samplecrd.k8s.io";

pub(super) fn network_path() -> String {
    format!("/apis/samplecrd.k8s.io/v1/namespaces/{NAMESPACE}/networks/{NETWORK}")
}

/// Server-side apply, as `kubectl apply --server-side` sends it.
async fn apply(client: &Client, path: &str, manifest: &str) -> Result<(), kube_client::Error> {
    let request =
        http::Request::patch(format!("{path}?fieldManager={FIELD_MANAGER}&fieldValidation=Strict"))
            .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml")
            .body(manifest.as_bytes().to_vec())
            .map_err(kube_client::Error::HttpError)?;
    client.request::<Value>(request).await.map(drop)
}
