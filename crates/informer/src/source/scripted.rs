//! A source that answers from a script, for tests.
use super::{ListPage, ListRequest, ListWatch, SourceError, WatchFrame, WatchRequest, WatchStream};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// A request to a [`Script`], with its time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Asked {
    /// A list.
    List(Instant, ListRequest),
    /// A watch.
    Watch(Instant, WatchRequest),
}

/// One answer of a script.
#[derive(Debug)]
#[non_exhaustive]
pub enum Answer {
    /// To a list.
    List(Result<ListPage, SourceError>),
    /// To a watch: it fails to open.
    Refuse(SourceError),
    /// To a watch: it opens, plays these steps, and closes.
    Watch(Vec<Step>),
}

/// One step of a scripted watch.
#[derive(Debug)]
#[non_exhaustive]
pub enum Step {
    /// Sends a frame.
    Frame(WatchFrame),
    /// Breaks the stream.
    Break(SourceError),
    /// Sends nothing for this time.
    Wait(Duration),
    /// Sends nothing for ever.
    Hang,
}

/// Answers requests in the given order; each answer must fit the kind of the next request. After
/// the last answer, lists are never answered and watches stay open without frames, so that the
/// informer is idle.
#[derive(Clone)]
pub struct Script(Arc<Mutex<State>>);

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.lock();
        f.debug_struct("Script")
            .field("answers_left", &state.answers.len())
            .field("asked", &state.asked.len())
            .finish_non_exhaustive()
    }
}

struct State {
    answers: VecDeque<Answer>,
    asked: Vec<Asked>,
    can_stream_list: bool,
}

impl Script {
    /// A script of a server without streaming lists.
    pub fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self(Arc::new(Mutex::new(State {
            answers: answers.into_iter().collect(),
            asked: Vec::new(),
            can_stream_list: false,
        })))
    }

    /// A script of a server with streaming lists.
    pub fn streaming(answers: impl IntoIterator<Item = Answer>) -> Self {
        let script = Self::new(answers);
        script.0.lock().can_stream_list = true;
        script
    }

    /// The requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.0.lock().asked.clone()
    }

    /// Appends an answer.
    pub fn push(&self, answer: Answer) {
        self.0.lock().answers.push_back(answer);
    }

    fn next(&self, asked: Asked) -> Option<Answer> {
        let mut state = self.0.lock();
        state.asked.push(asked);
        state.answers.pop_front()
    }
}

impl ListWatch for Script {
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<ListPage, SourceError>> {
        async move {
            let asked = Asked::List(Instant::now(), request);
            match self.next(asked.clone()) {
                Some(Answer::List(answer)) => answer,
                Some(_) => Err(off_script(&asked)),
                None => std::future::pending().await,
            }
        }
        .boxed()
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<WatchStream, SourceError>> {
        async move {
            let asked = Asked::Watch(Instant::now(), request);
            match self.next(asked.clone()) {
                Some(Answer::Watch(steps)) => Ok(play(steps)),
                Some(Answer::Refuse(error)) => Err(error),
                Some(_) => Err(off_script(&asked)),
                None => Ok(stream::pending().boxed()),
            }
        }
        .boxed()
    }

    fn can_stream_list(&self) -> bool {
        self.0.lock().can_stream_list
    }
}

fn off_script(asked: &Asked) -> SourceError {
    SourceError::protocol(format!("the next answer of the script does not fit {asked:?}"))
}

fn play(steps: Vec<Step>) -> WatchStream {
    stream::unfold(VecDeque::from(steps), |mut steps| async move {
        loop {
            match steps.pop_front()? {
                Step::Frame(frame) => return Some((Ok(frame), steps)),
                Step::Break(error) => return Some((Err(error), VecDeque::new())),
                Step::Wait(time) => sleep_until(Instant::now() + time).await,
                Step::Hang => std::future::pending().await,
            }
        }
    })
    .boxed()
}
