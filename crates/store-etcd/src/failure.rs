//! What etcd's refusals mean: above all, whether nothing happened for sure.
//!
//! etcd's errors have no machine-readable reason; its own client tells them by their text too
//! (`api/v3rpc/rpctypes/error.go`).

use crate::grpc::{GrpcError, code};

/// What a failed call means for a caller who wants it done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing happened; another member may do it.
    Elsewhere,
    /// Nothing happened; the same member may do it in a while.
    Later,
    /// Nothing happened; a new token is needed.
    Token,
    /// Nothing happened, and nothing will: the request itself is refused.
    Final,
    /// It may have happened.
    Unsure,
}

/// Kinds of final refusals that have a meaning of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    Compacted,
    Future,
    TooLarge,
    LeaseGone,
    Denied,
    Other,
}

/// What the error means.
pub(crate) fn verdict(error: &GrpcError) -> Verdict {
    let (code, message) = match error {
        GrpcError::Status { code, message } => (code, message),
        GrpcError::NotProcessed(_) => return Verdict::Elsewhere,
        GrpcError::Lost(_) | GrpcError::Malformed(_) => return Verdict::Unsure,
    };
    if message.contains("invalid auth token") || message.contains("revision of auth store is old") {
        return Verdict::Token;
    }
    // Checked before a request is taken in. (`etcdserver: leader changed` and the time-outs are
    // not: the proposal may live on.)
    let did_nothing =
        ["etcdserver: no leader", "not supported for learner", "raft proposal dropped"];
    if did_nothing.iter().any(|text| message.contains(text)) {
        return Verdict::Elsewhere;
    }
    match *code {
        code::RESOURCE_EXHAUSTED if message.contains("too many requests") => Verdict::Later,
        code::UNAUTHENTICATED => Verdict::Token,
        code::INVALID_ARGUMENT
        | code::NOT_FOUND
        | code::ALREADY_EXISTS
        | code::PERMISSION_DENIED
        | code::RESOURCE_EXHAUSTED
        | code::FAILED_PRECONDITION
        | code::OUT_OF_RANGE
        | code::UNIMPLEMENTED => Verdict::Final,
        _ => Verdict::Unsure,
    }
}

/// Which refusal it is.
pub(crate) fn refusal(error: &GrpcError) -> Refusal {
    let GrpcError::Status { code, message } = error else { return Refusal::Other };
    let says = |text: &str| message.contains(text);
    if says("required revision has been compacted") {
        Refusal::Compacted
    } else if says("required revision is a future revision") {
        Refusal::Future
    } else if says("request is too large") || says("received message larger than max") {
        Refusal::TooLarge
    } else if says("requested lease not found") {
        Refusal::LeaseGone
    } else if *code == code::PERMISSION_DENIED
        || says("permission denied")
        || says("authentication failed")
    {
        Refusal::Denied
    } else {
        Refusal::Other
    }
}

/// Whether a call was refused because of who asked.
pub(crate) fn is_for_others(error: &GrpcError) -> bool {
    let GrpcError::Status { code, message } = error else { return false };
    *code == code::PERMISSION_DENIED
        || message.contains("user name is empty")
        || verdict(error) == Verdict::Token
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u32, message: &str) -> GrpcError {
        GrpcError::Status { code, message: message.into() }
    }

    /// Codes and texts from etcd's `rpctypes/error.go`.
    #[test]
    fn only_what_surely_did_nothing_is_called_so() {
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
        assert_eq!(verdict(&GrpcError::Malformed("x".into())), Verdict::Unsure);
    }

    #[test]
    fn refusals_are_told_apart() {
        for (code, message, expected) in [
            (11, "etcdserver: mvcc: required revision has been compacted", Refusal::Compacted),
            (11, "etcdserver: mvcc: required revision is a future revision", Refusal::Future),
            (3, "etcdserver: request is too large", Refusal::TooLarge),
            (8, "grpc: received message larger than max (2800000 vs. 2097152)", Refusal::TooLarge),
            (5, "etcdserver: requested lease not found", Refusal::LeaseGone),
            (3, "etcdserver: authentication failed, invalid user ID or password", Refusal::Denied),
            (3, "etcdserver: duplicate key given in txn request", Refusal::Other),
        ] {
            assert_eq!(refusal(&status(code, message)), expected, "{message}");
        }
    }
}
