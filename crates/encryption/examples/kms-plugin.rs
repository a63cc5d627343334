//! A KMS plugin that protects nothing, to try servers with: `kms-plugin SOCKET KEY`. Each line of
//! its standard input is the id of the next key.

use setpoint_encryption::kms::testing::KmsPlugin;
use std::path::Path;
use tokio::io::{AsyncBufReadExt as _, BufReader, stdin};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(socket), Some(key_id)) = (arguments.next(), arguments.next()) else {
        return Err(std::io::Error::other("usage: kms-plugin SOCKET KEY"));
    };
    let plugin = KmsPlugin::bind(Path::new(&socket), &key_id)?;
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        plugin.change(|behavior| behavior.key_id = line);
    }
    std::future::pending().await
}
