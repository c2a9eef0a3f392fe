//! A host name that stands for several addresses, only one of which leads to the server.

use dlock_testlab::{Stop, rerun_with_addresses, server_of_rerun};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::support::{connect, exclusive, free, renew, run, start, take};

/// The addresses of `localhost`. Nothing listens at the first one, the second one accepts
/// connections and never answers, and the third one leads to the server.
const ADDRESSES: [&str; 3] = ["127.0.0.2", "127.0.0.3", "127.0.0.4"];

/// Passes the connections at this listener on to the server.
async fn pass_on(listener: TcpListener, server: String) {
    let mut connections = JoinSet::new();
    while let Ok((mut client, _)) = listener.accept().await {
        let server = server.clone();
        connections.spawn(async move {
            if let Ok(mut onward) = TcpStream::connect(server).await {
                let _ = copy_bidirectional(&mut client, &mut onward).await;
            }
        });
    }
}

#[test]
fn all_addresses_of_a_name_are_tried() {
    run(async {
        let Some(server) = server_of_rerun() else {
            let (server, _) = start().await?;
            let test = "addresses::all_addresses_of_a_name_are_tried";
            return rerun_with_addresses(test, &server.address(), &ADDRESSES).await;
        };
        let last = TcpListener::bind((ADDRESSES[2], 0)).await?;
        let port = last.local_addr()?.port();
        let _silent = TcpListener::bind((ADDRESSES[1], port)).await?;
        let used = async {
            let client = connect(&format!("redis://localhost:{port}")).await?;
            let held = exclusive("a");
            take(&client, &held).await?;
            renew(&client, &held).await?;
            free(&client, &held).await
        };
        tokio::select! {
            used = used => used,
            () = pass_on(last, server) => Err(Stop::failed("the listener has ended")),
        }
    });
}
