//! gRPC over one HTTP/2 connection: frames of messages, statuses, and calls.
//!
//! The crate knows no services. A caller connects, chooses the time of its calls, and decides which
//! calls are repeated; a [`SocketClient`] does so for plugins behind a Unix socket.
//!
//! # Theory
//!
//! A call is one HTTP/2 stream. Both directions are *frames*: five bytes (whether the message is
//! compressed, and its length) and a protocol buffer ([`frame`], [`Frames`]). The answer ends with
//! a [`Status`]: in the trailers, or in the headers if there is nothing else.
//!
//! | a [`Call`] fails with | the request |
//! |---|---|
//! | [`OpenError`] | did not leave |
//! | [`GrpcError::NotProcessed`] | was not processed |
//! | [`GrpcError::Status`] | was refused; the code says how |
//! | any other [`GrpcError`] | may have been processed |
//!
//! Every message has a maximum, which its reader chooses. Messages are never compressed, because
//! calls ask for none that are.
//!
//! Source: gRPC's `PROTOCOL-HTTP2.md` and `statuscodes.md`.
//!
//! ```
//! use setpoint_grpc::{Frames, frame};
//!
//! let mut frames = Frames::new(1 << 20);
//! let bytes = frame(&"text".to_owned());
//! let (first, second) = bytes.split_at(7);
//! frames.push(first);
//! assert_eq!(frames.take(), Ok(None));
//! frames.push(second);
//! // A protocol buffer with the text as its first field.
//! assert_eq!(frames.take().unwrap().unwrap(), "\x0a\x04text");
//! ```

mod call;
mod frame;
mod socket;
mod status;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use call::{
    Answers, Call, GrpcError, Malformed, OpenError, Requests, Step, WHOLE_SILENCES_MAX, request,
};
pub use frame::{FrameError, Frames, frame};
pub use socket::{RpcError, SocketClient, shortened};
pub use status::{Code, STATUS_TEXT_BYTES_MAX, Status};
