//! Records the requests and answers of a manager in a file, and replays a manager from the file.
//!
//! # Theory
//!
//! The only inputs of a manager are its client and its clock. [`ManagerBuilder::record`] puts a
//! recorder around the client. The recorder writes each request, its answer and each piece of a
//! watch, with the time, as lines of JSON. A [`Recording`] reads the lines and answers a second
//! manager from them, at the same times. Its reconcilers see what they saw in production: under a
//! debugger, with more logging, or instantly on a runtime with paused time.
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
//! Times (`at`) are microseconds since the recorder was created. A `data` line contains text. A
//! piece that is not UTF-8 is a `bytes` line, in which each character up to U+00FF is one byte. An
//! exchange ends with `end`, with `failed`, or with `dropped` if the caller dropped it.
//!
//! # Answers of a replay
//!
//! | request of the replay | answer |
//! |---|---|
//! | a recorded exchange with the same method, path and parameters is left | the recorded answer, no earlier than at its recorded time |
//! | none is left, and it is a watch | an open watch without events |
//! | none is left, and it is anything else | a broken connection, and a [`Difference`] |
//!
//! The parameter `timeoutSeconds` is ignored. Events are matched by their namespace, because their
//! names depend on the time; the bodies of new ones are not compared. Other bodies of writes are
//! compared as JSON, ignoring values that are dates and the holders of Leases. A different body is
//! a [`Difference`], but the recorded answer is still given, so that the replay continues.
//!
//! # Limits of a replay
//!
//! In a replay, a pass takes no time. In production, many passes ran concurrently. Therefore keys
//! may be reconciled in another order, and a pass may see an earlier state of a cache. Such
//! differences are reported. Requests that do not go through the manager's client (those to an
//! [additional cluster](crate::cluster), another client, the file system) are not recorded.
//!
//! The Lease of a [shard](crate::shard)'s member has a name made of its identity, so a replay needs
//! the recorded one: set it.
//!
//! A recording contains the answers of the API, including Secrets. Protect the file like a
//! kubeconfig.
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
