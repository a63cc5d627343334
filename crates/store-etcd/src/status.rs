//! The state of the members.

use crate::{
    cluster::{Cluster, Repeat, describe},
    connection::{CallError, Connection, NotSent},
    error::EtcdError,
    failure::{Verdict, verdict},
    proto::{StatusAnswer, StatusCall, path},
};
use futures::future::join_all;
use http::HeaderValue;
use setpoint_grpc::frame;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// The oldest supported etcd: 3.4 introduced fragments and progress requests.
pub const VERSION_MIN: (u32, u32, u32) = (3, 4, 0);

/// The state of all members.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EtcdStatus {
    /// In the order of the endpoints.
    pub members: Vec<EtcdMember>,
}

impl EtcdStatus {
    /// The leader's address, if a member that responds is the leader.
    pub fn leader(&self) -> Option<&str> {
        let is_leader =
            |member: &&EtcdMember| member.state.as_ref().is_ok_and(|state| state.is_leader);
        self.members.iter().find(is_leader).map(|member| &*member.endpoint)
    }

    /// Whether a member can serve: it responds, knows a leader, and reports no error.
    pub fn is_serving(&self) -> bool {
        let serves = |state: &EtcdMemberState| state.has_leader && state.errors.is_empty();
        self.members.iter().any(|member| member.state.as_ref().is_ok_and(serves))
    }
}

/// One member.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EtcdMember {
    /// Its address, as configured.
    pub endpoint: String,
    /// Its state, or why it did not respond.
    pub state: Result<EtcdMemberState, String>,
}

/// The state that a member reports.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EtcdMemberState {
    /// etcd's version.
    pub version: String,
    /// Size of its database file, in bytes.
    pub db_size: u64,
    /// Bytes in use in the file.
    pub db_size_in_use: u64,
    /// Whether it is the leader.
    pub is_leader: bool,
    /// Whether it knows a leader.
    pub has_leader: bool,
    /// Errors, such as an alarm for lack of space.
    pub errors: Vec<String>,
}

/// Queries all members in parallel.
pub(crate) async fn status(cluster: &Cluster) -> EtcdStatus {
    let members = cluster.endpoints.iter().enumerate().map(async |(i, endpoint)| EtcdMember {
        endpoint: endpoint.text.clone(),
        state: ask(cluster, i).await.map(|answer| state(&answer)),
    });
    EtcdStatus { members: join_all(members).await }
}

async fn ask(cluster: &Cluster, endpoint: usize) -> Result<StatusAnswer, String> {
    let target: &Arc<_> = &cluster.endpoints[endpoint];
    let dialled = Connection::dial(endpoint, target, &cluster.options, &cluster.tasks, false).await;
    let connection = dialled.map_err(|NotSent(why)| why)?;
    let answer = ask_on(cluster, &connection, cluster.options.attempt_timeout).await;
    answer.map_err(|error| format!("{}: {}", target.text, describe(&error)))
}

/// Sends a token: newer members report their status to administrators only, if authentication is
/// on.
async fn ask_on(
    cluster: &Cluster,
    connection: &Connection,
    silence: Duration,
) -> Result<StatusAnswer, CallError> {
    let token = cluster.auth.token(connection, &cluster.options).await?;
    let answer = query_as(connection, token.as_ref(), silence).await;
    if matches!(&answer, Err(CallError::Grpc(error)) if verdict(error) == Verdict::Token) {
        // A restarted member forgets tokens.
        cluster.auth.refused(token.as_ref());
    }
    answer
}

/// Queries the member of a connection.
pub(crate) async fn query_as(
    connection: &Connection,
    token: Option<&HeaderValue>,
    silence: Duration,
) -> Result<StatusAnswer, CallError> {
    let (question, sent) = (frame(&StatusCall {}), AtomicBool::new(false));
    connection.call(path::STATUS, token, question, &sent, silence).await
}

fn state(answer: &StatusAnswer) -> EtcdMemberState {
    let own = answer.header.as_ref().map_or(0, |header| header.member_id);
    EtcdMemberState {
        version: answer.version.clone(),
        db_size: u64::try_from(answer.db_size).unwrap_or_default(),
        db_size_in_use: u64::try_from(answer.db_size_in_use).unwrap_or_default(),
        is_leader: own != 0 && answer.leader == own,
        has_leader: answer.leader != 0,
        errors: answer.errors.clone(),
    }
}

/// Rejects a member that reports a version that is too old. Returns the state of the first member
/// that responds, if one does.
pub(crate) async fn check_version(cluster: &Cluster) -> Result<Option<EtcdMemberState>, EtcdError> {
    for i in 0..cluster.endpoints.len() {
        let Ok(answer) = ask(cluster, i).await else { continue };
        if version(&answer.version).is_some_and(|version| version < VERSION_MIN) {
            return Err(EtcdError::TooOld { version: answer.version });
        }
        return Ok(Some(state(&answer)));
    }
    Ok(None)
}

/// The size of the database file, as a member last reported it.
#[derive(Debug, Default)]
pub(crate) struct DatabaseSize {
    /// In bytes; 0: no member has reported it.
    bytes: AtomicU64,
    /// Whether a task asks for it.
    is_asked: AtomicBool,
}

impl DatabaseSize {
    /// The size in bytes, if a member has reported it.
    pub(crate) fn bytes(&self) -> Option<u64> {
        Some(self.bytes.load(Relaxed)).filter(|bytes| *bytes > 0)
    }

    pub(crate) fn set(&self, bytes: u64) {
        self.bytes.store(bytes, Relaxed);
    }

    /// Asks the member in use, unless another task does. A member that refuses, because the user
    /// is no administrator of etcd, leaves the size as it was.
    pub(crate) async fn ask(&self, cluster: &Cluster) {
        if self.is_asked.swap(true, Relaxed) {
            return;
        }
        let answer: Result<StatusAnswer, _> =
            cluster.call(path::STATUS, &StatusCall {}, Repeat::Freely).await;
        match answer {
            Ok(answer) => self.set(state(&answer).db_size),
            Err(failure) => tracing::debug!(?failure, "ask etcd for its size"),
        }
        self.is_asked.store(false, Relaxed);
    }
}

/// Parses `3.5.16`, with or without a suffix.
pub(crate) fn version(text: &str) -> Option<(u32, u32, u32)> {
    let mut numbers = text.splitn(3, '.').map(|part| {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part[..digits].parse().ok()
    });
    Some((numbers.next()??, numbers.next()??, numbers.next()??))
}

/// Whether a member's responses to progress requests are reliable: sent after all earlier changes
/// of all watchers of the stream. Earlier versions respond at once, while changes are still in
/// flight (etcd issue 15220, fixed in 3.4.25 and 3.5.8; KEP-2340 has the same condition).
pub(crate) fn has_reliable_progress(text: &str) -> bool {
    match version(text) {
        Some((3, 4, patch)) => patch >= 25,
        Some((3, 5, patch)) => patch >= 8,
        Some(version) => version >= (3, 6, 0),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_parsed_and_compared() {
        assert_eq!(version("3.5.16"), Some((3, 5, 16)));
        assert_eq!(version("3.6.0-rc.1"), Some((3, 6, 0)));
        assert_eq!(version("3.5"), None);
        assert_eq!(version(""), None);
        let reliable = ["3.4.25", "3.4.30", "3.5.8", "3.5.30", "3.6.0", "4.0.0"];
        assert!(reliable.into_iter().all(has_reliable_progress));
        let not = ["3.4.23", "3.5.7", "3.5.0-rc.1", "3.3.99", "unknown", ""];
        assert!(!not.into_iter().any(has_reliable_progress));
    }
}
