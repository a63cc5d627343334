//! What goes wrong between a server and an informer.
use crate::coverage::Seen;
use crate::server::State;
use rand::Rng;
use setpoint_informer::SourceError;
use setpoint_object::{ApiError, Reason};

/// How a server is down for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Down {
    Forbidden,
    Missing,
    Refused,
    Busy,
}

impl Down {
    pub(crate) const ALL: [Self; 4] = [Self::Forbidden, Self::Missing, Self::Refused, Self::Busy];

    pub(crate) fn error(self) -> SourceError {
        match self {
            Self::Forbidden => forbidden(),
            Self::Missing => missing(),
            Self::Refused => refused(),
            Self::Busy => busy(0),
        }
    }
}

pub(crate) fn expired() -> SourceError {
    ApiError::expired("too old resource version").into()
}

pub(crate) fn too_large() -> SourceError {
    ApiError::too_large_resource_version(9, 5).into()
}

pub(crate) fn refused() -> SourceError {
    SourceError::Refused(Box::new(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)))
}

pub(crate) fn lost() -> SourceError {
    SourceError::Transport("connection reset by peer".into())
}

pub(crate) fn broken_off() -> SourceError {
    SourceError::Protocol { what: "a list that breaks off".to_owned() }
}

pub(crate) fn busy(retry_after_seconds: u32) -> SourceError {
    ApiError::too_many_requests("busy", retry_after_seconds).into()
}

pub(crate) fn internal() -> SourceError {
    ApiError::internal("oops").into()
}

pub(crate) fn missing() -> SourceError {
    ApiError::no_route().into()
}

pub(crate) fn forbidden() -> SourceError {
    ApiError::new(403, Reason::Forbidden, "no").into()
}

pub(crate) fn unknown_parameter() -> SourceError {
    ApiError::bad_request("sendInitialEvents is forbidden").into()
}

pub(crate) fn of_list(state: &mut State) -> SourceError {
    let (seen, error) = match state.rng.random_range(0..9) {
        0 | 1 => (Seen::ListExpired, expired()),
        2 => (Seen::ListTooLarge, too_large()),
        3 => (Seen::ListTooMany, busy(0)),
        4 => (Seen::ListRetryAfter, busy(20)),
        5 => (Seen::ListInternal, internal()),
        6 => (Seen::ListForbidden, forbidden()),
        7 => (Seen::ListRefused, refused()),
        _ if state.rng.random() => (Seen::ListMissing, missing()),
        _ => (Seen::ListLost, lost()),
    };
    state.note(seen);
    error
}

pub(crate) fn of_stream(state: &mut State) -> SourceError {
    let (seen, error) = match state.rng.random_range(0..6) {
        0 | 1 => (Seen::StreamExpired, expired()),
        2 => (Seen::StreamTooLarge, too_large()),
        3 => (Seen::StreamBusy, busy(0)),
        4 => (Seen::StreamRefused, refused()),
        _ if state.rng.random() => (Seen::StreamFailed, internal()),
        _ => (Seen::StreamFailed, lost()),
    };
    state.note(seen);
    error
}

pub(crate) fn of_opening(state: &mut State) -> SourceError {
    let (seen, error) = match state.rng.random_range(0..9) {
        0 | 1 => (Seen::OpenExpired, expired()),
        2 => (Seen::OpenTooMany, busy(0)),
        3 => (Seen::OpenRetryAfter, busy(30)),
        4 => (Seen::OpenInternal, internal()),
        5 => (Seen::OpenForbidden, forbidden()),
        6 | 7 => (Seen::OpenRefused, refused()),
        _ if state.rng.random() => (Seen::OpenMissing, missing()),
        _ => (Seen::OpenLost, lost()),
    };
    state.note(seen);
    error
}

pub(crate) fn of_watch(state: &mut State) -> SourceError {
    let (seen, error) = match state.rng.random_range(0..7) {
        0..3 => (Seen::WatchExpired, expired()),
        3 => (Seen::WatchTooMany, busy(0)),
        4 => (Seen::WatchInternal, internal()),
        5 => (Seen::WatchOther, forbidden()),
        _ => (
            Seen::WatchBroken,
            SourceError::Protocol { what: "not a watch event: EOF while parsing".to_owned() },
        ),
    };
    state.note(seen);
    error
}
