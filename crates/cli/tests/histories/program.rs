//! The program with a data folder, as a separate process.

use crate::ready_line;
use http::Request;
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use kube_client::Client;
use kube_client::client::Body;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// A running `setpoint up --data`; killed when dropped.
pub(crate) struct Program {
    process: Child,
    folder: PathBuf,
    plain: String,
}

impl Program {
    /// Starts it with its data in a folder, and waits until it serves.
    pub(crate) async fn start(folder: &Path) -> Self {
        let log = std::fs::File::options().create(true).append(true).open(folder.join("log"));
        let mut process = Command::new(env!("CARGO_BIN_EXE_setpoint"))
            .args(["up", "--secure-port", "0", "--insecure-port", "0"])
            .arg("--kubeconfig")
            .arg(folder.join("kubeconfig"))
            .arg("--data")
            .arg(folder.join("data"))
            .stdout(Stdio::piped())
            .stderr(log.unwrap())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut lines = BufReader::new(process.stdout.take().unwrap());
        lines.read_line(&mut line).await.unwrap();
        let log = || std::fs::read_to_string(folder.join("log")).unwrap();
        let Some((_, Some(plain))) = ready_line::urls(&line) else {
            panic!("the ready line is {line:?}:\n{}", log());
        };
        Self { process, folder: folder.to_owned(), plain }
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.process.start_kill().unwrap();
    }

    /// Starts it again on the same folder.
    pub(crate) async fn restart(&mut self) {
        self.process.wait().await.unwrap();
        *self = Self::start(&self.folder).await;
    }

    /// Stops it and waits for its end.
    pub(crate) async fn stop(mut self) {
        self.kill();
        self.process.wait().await.unwrap();
    }

    /// A client of the plain port, with separate connections.
    pub(crate) fn client(&self) -> Client {
        let client = legacy::Client::builder(TokioExecutor::new()).build_http::<Body>();
        let plain = self.plain.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (mut head, body) = request.into_parts();
            let path = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
            head.uri = format!("{plain}{path}").parse().unwrap();
            client.request(Request::from_parts(head, body))
        });
        Client::new(service, "default")
    }
}
