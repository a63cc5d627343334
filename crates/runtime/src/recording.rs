//! What a manager asks and is answered, written to a file, and a manager run again from the file.
//!
//! # Theory
//!
//! A manager knows the world through its client and its clock alone. [`ManagerBuilder::record`]
//! puts a recorder around the client: it writes each request, its answer and each piece of a watch,
//! with the time, to lines of JSON. A [`Recording`] reads the lines and answers a second manager
//! from them, at the same moments: its reconcilers see what they saw in production, under a
//! debugger or with more logging, and on a runtime with paused time in an instant.
//!
//! ```text
//! {"recording":"setpoint-client","version":1,"started":"2026-01-01T00:00:00.000000Z","seed":7}
//! {"at":120,"exchange":0,"request":{"method":"GET","uri":"/api/v1/pods?limit=500"}}
//! {"at":950,"exchange":0,"answer":{"status":200,"headers":[["content-type","application/json"]]}}
//! {"at":990,"exchange":0,"data":"{\"kind\":\"PodList\",…"}
//! {"at":991,"exchange":0,"end":{}}
//! {"at":1200,"exchange":1,"request":{"method":"PATCH","uri":"/api/v1/…","origin":"copier default/a …","body":"{…}"}}
//! {"at":1300,"exchange":1,"failed":"connection closed"}
//! {"at":9000,"over":{"lines":12}}
//! ```
//!
//! Times (`at`) are microseconds since the recorder was made. A `data` line is text; a piece that
//! is not UTF-8 is a `bytes` line, in which each character up to U+00FF is one byte. An exchange
//! ends with `end`, with `failed`, or with `dropped` when the caller lost interest.
//!
//! # What a replay is given
//!
//! | request of the replay                                         | answer                                                      |
//! |---------------------------------------------------------------|-------------------------------------------------------------|
//! | the next recorded one has the same method, path and parameters | what was recorded, no earlier than it came then             |
//! | none is left: a watch                                         | an open watch without events                                |
//! | none is left: anything else                                   | a broken connection, and a [`Difference`]                   |
//!
//! `timeoutSeconds` does not count, and Events are matched by their namespace, because their names
//! are made of the time. Bodies of writes are compared as JSON, without the values that are dates;
//! one that differs is a [`Difference`], and the recorded answer is given all the same, so that
//! the replay goes on.
//!
//! # What a replay is not
//!
//! A pass takes no time in a replay, and in production many ran at once: keys may be reconciled in
//! another order, and a pass may see a cache a moment earlier. What differs is reported. Requests
//! that do not go through the manager's client (another client, the file system) are not recorded.
//!
//! A recording holds what the API said, Secrets included: give the file the rights of a kubeconfig.
//!
//! [`ManagerBuilder::record`]: crate::ManagerBuilder::record

mod line;
mod recorder;
mod replay;

pub(crate) use self::recorder::recorded;
pub use self::{
    recorder::{RECORDER_LINES_MAX, RecorderWorker},
    replay::{DIFFERENCES_MAX, Difference, RECORDING_BYTES_MAX, Recording, RecordingError, Replay},
};
