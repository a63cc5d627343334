use super::*;

/// A frame that opens a stream with one header, its compression stored.
fn open(id: u32, name: &str, value: &str, has_begun: bool) -> Vec<u8> {
    let mut headers = 1_u32.to_be_bytes().to_vec();
    for text in [name, value] {
        headers.extend_from_slice(&(text.len() as u32).to_be_bytes());
        headers.extend_from_slice(text.as_bytes());
    }
    let n = headers.len() as u16;
    let mut body = id.to_be_bytes().to_vec();
    body.extend_from_slice(&[0; 6]);
    if !has_begun {
        body.extend_from_slice(&[0x78, 0x01]);
    }
    body.push(0);
    body.extend_from_slice(&n.to_le_bytes());
    body.extend_from_slice(&(!n).to_le_bytes());
    body.extend_from_slice(&headers);
    let mut frame = vec![0x80, 3, 0, 1, 0];
    frame.extend_from_slice(&(body.len() as u32).to_be_bytes()[1..]);
    frame.extend_from_slice(&body);
    frame
}

#[tokio::test]
async fn streams_carry_data_both_ways_and_end_with_a_flag() {
    let (mut client, server) = tokio::io::duplex(1 << 16);
    client.write_all(&open(1, "kind", "echo", false)).await.unwrap();
    client.write_all(&frame::data(1, b"hello", true)).await.unwrap();
    client.write_all(&[0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 7]).await.unwrap();
    let served = run(server, async |mut streams: Streams| {
        let mut stream = streams.recv().await.unwrap();
        assert_eq!(stream.header("kind"), "echo");
        let mut text = Vec::new();
        stream.io.read_to_end(&mut text).await.unwrap();
        // The frames are received in order, so the ping has an answer by then.
        stream.io.write_all(&text).await.unwrap();
    });
    served.await.unwrap();
    let mut sent = Vec::new();
    client.read_to_end(&mut sent).await.unwrap();
    let reply = frame::reply(1, false);
    assert!(sent.starts_with(&reply));
    let rest = &sent[reply.len()..];
    let echo = [frame::data(1, b"hello", false), frame::data(1, b"", true)].concat();
    assert!(rest.windows(echo.len()).any(|window| window == echo), "{rest:?}");
}

#[tokio::test]
async fn the_end_of_the_client_ends_the_session() {
    let (client, server) = tokio::io::duplex(1 << 10);
    drop(client);
    run(server, async |_streams: Streams| std::future::pending().await).await.unwrap();
}

#[tokio::test]
async fn other_versions_are_errors() {
    let (mut client, server) = tokio::io::duplex(1 << 10);
    client.write_all(&[0x80, 2, 0, 1, 0, 0, 0, 0]).await.unwrap();
    let ended = run(server, async |_streams: Streams| std::future::pending().await).await;
    assert!(ended.is_err());
}
