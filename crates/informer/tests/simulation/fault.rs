//! Errors between a server and an informer.
use crate::coverage::CoverPoint;
use crate::server::State;
use rand::Rng;
use setpoint_informer::SourceError;
use setpoint_object::{ApiError, Reason};

/// The error of all requests during an outage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OutageKind {
    Forbidden,
    Missing,
    Refused,
    Busy,
}

impl OutageKind {
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
    SourceError::Protocol { what: "a list without an end".to_owned() }
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
    let (point, error) = match state.rng.random_range(0..9) {
        0 | 1 => (CoverPoint::ListExpired, expired()),
        2 => (CoverPoint::ListTooLarge, too_large()),
        3 => (CoverPoint::ListTooMany, busy(0)),
        4 => (CoverPoint::ListRetryAfter, busy(20)),
        5 => (CoverPoint::ListInternal, internal()),
        6 => (CoverPoint::ListForbidden, forbidden()),
        7 => (CoverPoint::ListRefused, refused()),
        _ if state.rng.random() => (CoverPoint::ListMissing, missing()),
        _ => (CoverPoint::ListLost, lost()),
    };
    state.count(point);
    error
}

pub(crate) fn of_stream(state: &mut State) -> SourceError {
    let (point, error) = match state.rng.random_range(0..6) {
        0 | 1 => (CoverPoint::StreamExpired, expired()),
        2 => (CoverPoint::StreamTooLarge, too_large()),
        3 => (CoverPoint::StreamBusy, busy(0)),
        4 => (CoverPoint::StreamRefused, refused()),
        _ if state.rng.random() => (CoverPoint::StreamFailed, internal()),
        _ => (CoverPoint::StreamFailed, lost()),
    };
    state.count(point);
    error
}

pub(crate) fn of_opening(state: &mut State) -> SourceError {
    let (point, error) = match state.rng.random_range(0..9) {
        0 | 1 => (CoverPoint::OpenExpired, expired()),
        2 => (CoverPoint::OpenTooMany, busy(0)),
        3 => (CoverPoint::OpenRetryAfter, busy(30)),
        4 => (CoverPoint::OpenInternal, internal()),
        5 => (CoverPoint::OpenForbidden, forbidden()),
        6 | 7 => (CoverPoint::OpenRefused, refused()),
        _ if state.rng.random() => (CoverPoint::OpenMissing, missing()),
        _ => (CoverPoint::OpenLost, lost()),
    };
    state.count(point);
    error
}

pub(crate) fn of_watch(state: &mut State) -> SourceError {
    let (point, error) = match state.rng.random_range(0..7) {
        0..3 => (CoverPoint::WatchExpired, expired()),
        3 => (CoverPoint::WatchTooMany, busy(0)),
        4 => (CoverPoint::WatchInternal, internal()),
        5 => (CoverPoint::WatchOther, forbidden()),
        _ => (
            CoverPoint::WatchBroken,
            SourceError::Protocol { what: "not a watch event: EOF while parsing".to_owned() },
        ),
    };
    state.count(point);
    error
}
