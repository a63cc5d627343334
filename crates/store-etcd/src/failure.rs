//! Classification of etcd's errors, above all whether nothing happened for certain.
//!
//! etcd's errors have no machine-readable reason. Its own client also compares their texts
//! (`api/v3rpc/rpctypes/error.go`).

use setpoint_grpc::{Code, GrpcError, Status};

/// How to continue after a failed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing happened; try another member.
    Elsewhere,
    /// Nothing happened; try the same member after a pause.
    Later,
    /// Nothing happened; a new token is needed.
    Token,
    /// Nothing happened; the request itself is refused.
    Final,
    /// It may have happened.
    Unsure,
}

/// Final refusals with a special meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    Compacted,
    Future,
    TooLarge,
    /// etcd's quota is exhausted.
    Full,
    LeaseGone,
    Denied,
    Other,
}

/// Classifies an error.
pub(crate) fn verdict(error: &GrpcError) -> Verdict {
    let (code, message) = match error {
        GrpcError::Status(Status { code, text }) => (*code, text),
        GrpcError::NotProcessed(_) => return Verdict::Elsewhere,
        _ => return Verdict::Unsure,
    };
    if message.contains("invalid auth token") || message.contains("revision of auth store is old") {
        return Verdict::Token;
    }
    // Checked before etcd accepts a request. (`etcdserver: leader changed` and the timeouts are
    // not: the proposal may still be applied.)
    let did_nothing =
        ["etcdserver: no leader", "not supported for learner", "raft proposal dropped"];
    if did_nothing.iter().any(|text| message.contains(text)) {
        return Verdict::Elsewhere;
    }
    match code {
        Code::RESOURCE_EXHAUSTED if message.contains("too many requests") => Verdict::Later,
        Code::UNAUTHENTICATED => Verdict::Token,
        Code::INVALID_ARGUMENT
        | Code::NOT_FOUND
        | Code::ALREADY_EXISTS
        | Code::PERMISSION_DENIED
        | Code::RESOURCE_EXHAUSTED
        | Code::FAILED_PRECONDITION
        | Code::OUT_OF_RANGE
        | Code::UNIMPLEMENTED => Verdict::Final,
        _ => Verdict::Unsure,
    }
}

/// Classifies a final refusal.
pub(crate) fn refusal(error: &GrpcError) -> Refusal {
    let GrpcError::Status(Status { code, text: message }) = error else { return Refusal::Other };
    let contains = |text: &str| message.contains(text);
    if contains("required revision has been compacted") {
        Refusal::Compacted
    } else if contains("required revision is a future revision") {
        Refusal::Future
    } else if contains("request is too large") || contains("received message larger than max") {
        Refusal::TooLarge
    } else if contains("database space exceeded") {
        Refusal::Full
    } else if contains("requested lease not found") {
        Refusal::LeaseGone
    } else if *code == Code::PERMISSION_DENIED
        || contains("permission denied")
        || contains("authentication failed")
    {
        Refusal::Denied
    } else {
        Refusal::Other
    }
}

/// Whether the user may not make this call.
pub(crate) fn is_unauthorized(error: &GrpcError) -> bool {
    let GrpcError::Status(Status { code, text: message }) = error else { return false };
    *code == Code::PERMISSION_DENIED
        || message.contains("user name is empty")
        || verdict(error) == Verdict::Token
}

#[cfg(test)]
mod tests {
    use super::*;
    use setpoint_grpc::Malformed;

    fn status(code: u32, message: &str) -> GrpcError {
        GrpcError::Status(Status::new(Code(code), message))
    }

    /// Codes and texts from etcd's `rpctypes/error.go`.
    #[test]
    fn only_calls_that_certainly_did_nothing_are_classified_so() {
        for (code, message, expected) in [
            (14, "etcdserver: no leader", Verdict::Elsewhere),
            (14, "etcdserver: leader changed", Verdict::Unsure),
            (14, "etcdserver: server stopped", Verdict::Unsure),
            (14, "etcdserver: request timed out", Verdict::Unsure),
            (
                14,
                "etcdserver: request timed out, possibly due to previous leader failure",
                Verdict::Unsure,
            ),
            (14, "etcdserver: request timed out, possibly due to connection lost", Verdict::Unsure),
            (14, "etcdserver: unhealthy cluster", Verdict::Unsure),
            (2, "raft: stopped", Verdict::Unsure),
            (2, "raft proposal dropped", Verdict::Elsewhere),
            (13, "panic", Verdict::Unsure),
            (4, "context deadline exceeded", Verdict::Unsure),
            (8, "etcdserver: too many requests", Verdict::Later),
            (8, "etcdserver: mvcc: database space exceeded", Verdict::Final),
            (3, "etcdserver: request is too large", Verdict::Final),
            (5, "etcdserver: requested lease not found", Verdict::Final),
            (7, "etcdserver: permission denied", Verdict::Final),
            (11, "etcdserver: mvcc: required revision has been compacted", Verdict::Final),
            (16, "etcdserver: invalid auth token", Verdict::Token),
            (3, "etcdserver: revision of auth store is old", Verdict::Token),
        ] {
            assert_eq!(verdict(&status(code, message)), expected, "{message}");
        }
        assert_eq!(verdict(&GrpcError::Lost("x".into())), Verdict::Unsure);
        assert_eq!(verdict(&Malformed::NoStatus.into()), Verdict::Unsure);
    }

    #[test]
    fn refusals_are_classified() {
        for (code, message, expected) in [
            (11, "etcdserver: mvcc: required revision has been compacted", Refusal::Compacted),
            (11, "etcdserver: mvcc: required revision is a future revision", Refusal::Future),
            (3, "etcdserver: request is too large", Refusal::TooLarge),
            (8, "grpc: received message larger than max (2800000 vs. 2097152)", Refusal::TooLarge),
            (8, "etcdserver: mvcc: database space exceeded", Refusal::Full),
            (5, "etcdserver: requested lease not found", Refusal::LeaseGone),
            (3, "etcdserver: authentication failed, invalid user ID or password", Refusal::Denied),
            (3, "etcdserver: duplicate key given in txn request", Refusal::Other),
        ] {
            assert_eq!(refusal(&status(code, message)), expected, "{message}");
        }
    }
}
