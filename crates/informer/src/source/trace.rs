//! Traces of lists and watches: recorded from a source, and replayed as a source.
//!
//! # Theory
//!
//! A [`Recorder`] wraps a source and records requests and answers; a [`TraceSource`] answers from
//! the record. The record is a file of lines, each one JSON object, for common tools. Times (`at`)
//! are microseconds of tokio time since the recorder was made; requests are counted from 0.
//!
//! ```text
//! {"trace":"setpoint-list-watch","version":1}
//! {"at":0,"request":0,"what":"list","resourceVersion":"0","limit":500}
//! {"at":812,"request":0,"what":"item","object":{"metadata":{"name":"a"}}}
//! {"at":812,"request":0,"what":"end","resourceVersion":"7","continue":"…"}
//! {"at":900,"request":1,"what":"watch","resourceVersion":"7","timeoutSeconds":312,"sendInitialEvents":true}
//! {"at":950,"request":1,"what":"opened"}
//! {"at":990,"request":1,"what":"ADDED","object":{…}}
//! {"at":1200,"request":1,"what":"failed","error":"transport","message":"…"}
//! {"at":1300,"what":"over","lines":9}
//! ```
//!
//! | `what`                                     | when                                                    | carries                                   |
//! |--------------------------------------------|---------------------------------------------------------|-------------------------------------------|
//! | `list`, `watch`                            | a request is made                                       | its non-empty parameters                  |
//! | `item`, `end`                              | a list answers                                          | one object; version and continue token    |
//! | `opened`                                   | a watch was accepted                                    |                                           |
//! | `ADDED` `MODIFIED` `DELETED` `BOOKMARK` …  | a frame was received; other verbs belong to unknown frames | the object                                |
//! | `ERROR`                                    | the server ended the watch                              | the `Status`                              |
//! | `failed`                                   | a request or its answer broke                           | `error`: `api` (with the `Status`), `refused`, `transport`, `protocol`, and the message |
//! | `closed`                                   | a watch ended without an error                          |                                           |
//! | `dropped`                                  | the caller dropped the answer before its end             |                                           |
//! | `over`                                     | the recording has ended: the last line                  | how many lines are before it              |
//!
//! A trace without its last line was truncated, and is an error. A line has at most
//! [`TRACE_LINE_BYTES_MAX`] bytes.

mod line;
mod recorder;
mod replay;
#[cfg(test)]
mod tests;

pub use line::TRACE_LINE_BYTES_MAX;
pub use recorder::{RECORDER_LINES_MAX, Recorder, RecorderWorker};
pub use replay::{Speed, TRACE_BYTES_MAX, TraceError, TraceSource};
