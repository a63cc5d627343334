//! The steps, as data.

use kube_client::Client;
use network::api::CRD_YAML;
use serde_json::Value;

/// Where the story plays.
pub const NAMESPACE: &str = "default";
/// The name of its Network.
pub const NETWORK: &str = "example-network";

/// Who declares, in `managedFields`.
const FIELD_MANAGER: &str = "setpoint-demo";

/// One step.
pub(super) struct Step {
    pub(super) title: &'static str,
    pub(super) declared: &'static str,
    pub(super) act: Act,
    pub(super) expected: &'static str,
    /// Settled only when the controller reconciles.
    pub(super) wants_controller: bool,
}

/// What a step does, and what it looks at afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// Nothing: the controller has been started.
    Begin,
    /// Applies the CRD.
    Define,
    /// Applies the Network.
    Apply,
    /// Deletes the Network.
    Delete,
}

pub(super) const STEPS: &[Step] = &[
    Step {
        title: "The Network controller starts before there is such a thing as a Network",
        declared: "",
        act: Act::Begin,
        expected: "the server could not find the requested resource",
        wants_controller: false,
    },
    Step {
        title: "The type is defined, and the controller recovers by itself",
        declared: CRD_YAML,
        act: Act::Define,
        expected: "NamesAccepted=True NoConflicts\nEstablished=True InitialNamesAccepted\nKubernetesAPIApprovalPolicyConformant=False UnapprovedAnnotation",
        wants_controller: true,
    },
    Step {
        title: "A network is declared",
        declared: "apiVersion: samplecrd.k8s.io/v1\nkind: Network\nmetadata:\n  name: example-network\nspec:\n  cidr: 192.168.0.0/16\n  gateway: 192.168.0.1\n",
        act: Act::Apply,
        expected: "generation 1, observed 1: 192.168.0.0/16 with gateway 192.168.0.1 on registry/<uid>\n\
            Ready=True Synced: 192.168.0.0/16 with gateway 192.168.0.1 is registry/<uid>\n\
            event Normal Synced: 192.168.0.0/16 with gateway 192.168.0.1 is registry/<uid>",
        wants_controller: true,
    },
    Step {
        title: "It is edited into something that cannot be",
        declared: "apiVersion: samplecrd.k8s.io/v1\nkind: Network\nmetadata:\n  name: example-network\nspec:\n  cidr: 192.168.1.0/16\n  gateway: 192.168.1.1\n",
        act: Act::Apply,
        expected: "generation 2, observed 2: 192.168.0.0/16 with gateway 192.168.0.1 on registry/<uid>\n\
            Ready=False InvalidSpec: 192.168.1.0/16 has host bits set: 192.168.1.0 lies inside 192.168.0.0/16; write 192.168.0.0/16, or 192.168.1.0/24 for the network that starts at 192.168.1.0\n\
            event Warning InvalidSpec: 192.168.1.0/16 has host bits set: 192.168.1.0 lies inside 192.168.0.0/16; write 192.168.0.0/16, or 192.168.1.0/24 for the network that starts at 192.168.1.0",
        wants_controller: true,
    },
    Step {
        title: "It is edited into something that can",
        declared: "apiVersion: samplecrd.k8s.io/v1\nkind: Network\nmetadata:\n  name: example-network\nspec:\n  cidr: 192.168.1.0/24\n  gateway: 192.168.1.1\n",
        act: Act::Apply,
        expected: "generation 3, observed 3: 192.168.1.0/24 with gateway 192.168.1.1 on registry/<uid>\n\
            Ready=True Synced: 192.168.1.0/24 with gateway 192.168.1.1 is registry/<uid>\n\
            event Normal Synced: 192.168.1.0/24 with gateway 192.168.1.1 is registry/<uid>",
        wants_controller: true,
    },
    Step {
        title: "It is deleted, and its addresses are free again",
        declared: "",
        act: Act::Delete,
        expected: "gone",
        wants_controller: true,
    },
];

/// Does what the step declares. May be repeated.
pub(super) async fn declare(step: &Step, client: &Client) -> Result<(), kube_client::Error> {
    match step.act {
        Act::Begin => Ok(()),
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
