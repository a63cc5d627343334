//! The server process: a control plane and the server's end of the network.

use super::network::{Inbound, Network};
use super::process::LocalTime;
use futures::StreamExt;
use http_body_util::BodyExt;
use kube_client::Client;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Serves arriving requests until the network is dropped.
pub(super) async fn serve(
    client: Client,
    network: Network,
    time: LocalTime,
    mut arriving: mpsc::UnboundedReceiver<Inbound>,
) {
    let client = Arc::new(client);
    let mut serving = JoinSet::new();
    let mut talks = HashMap::new();
    loop {
        let inbound = tokio::select! {
            biased;
            inbound = arriving.recv() => inbound,
            // An ended request needs nothing more.
            Some(_) = serving.join_next() => continue,
        };
        match inbound {
            None => return,
            Some(Inbound::Request { talk, request }) => {
                let (client, network) = (client.clone(), network.clone());
                let answering = serving.spawn(async move {
                    let request = (*request).map(kube_client::client::Body::from);
                    let (head, body) = match client.send(request).await {
                        Ok(answer) => answer.into_parts(),
                        Err(_) => return network.answer_breaks(talk, time.now()),
                    };
                    network.answer_head(talk, head, time.now());
                    let mut frames = body.into_data_stream();
                    while let Some(frame) = frames.next().await {
                        match frame {
                            Ok(frame) => network.answer_frame(talk, frame, time.now()),
                            Err(_) => return network.answer_breaks(talk, time.now()),
                        }
                    }
                    network.answer_ends(talk, time.now());
                });
                talks.insert(talk, answering);
            }
            Some(Inbound::Close { talk }) => {
                if let Some(answering) = talks.remove(&talk) {
                    answering.abort();
                }
            }
        }
    }
}
