//! One instance of the service as the load balancer sees it: an address. In production it is a
//! process; here all instances share one process.

use std::{net::SocketAddr, sync::Arc};

use dlock::Locks;
use tokio::{net::TcpListener, sync::watch, task::JoinSet};

use crate::{
    Failure,
    app::{self, App, Phase, Settings},
    client::{self, Reply},
    stock::Stock,
};

pub(crate) struct Instance {
    pub(crate) address: SocketAddr,
    phase: watch::Sender<Phase>,
    serving: JoinSet<Result<(), Failure>>,
}

impl Instance {
    /// Starts the instance on a free port.
    pub(crate) async fn start(
        locks: &Locks,
        stock: &Arc<Stock>,
        settings: Settings,
    ) -> Result<Self, Failure> {
        let phase = watch::Sender::new(Phase::Serving);
        let app = App::new(locks, Arc::clone(stock), settings, phase.subscribe())?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let mut serving = JoinSet::new();
        serving.spawn(app::serve(listener, app));
        Ok(Self { address, phase, serving })
    }

    /// Sends a request such as `GET /ready` to the instance, and waits for the response.
    pub(crate) async fn send(&self, request: &str) -> Result<Reply, Failure> {
        client::send(self.address, request).await
    }

    /// The first step of a shutdown: the instance is no longer ready. A real service now waits
    /// until the load balancer has noticed.
    pub(crate) fn drain(&self) {
        self.phase.send_replace(Phase::Draining);
    }

    /// The second step: the instance accepts no more connections.
    pub(crate) fn stop(&self) {
        self.phase.send_replace(Phase::Stopping);
    }

    /// Waits until the requests have finished and the locks are released.
    pub(crate) async fn ended(mut self) -> Result<(), Failure> {
        while let Some(served) = self.serving.join_next().await {
            served??;
        }
        Ok(())
    }

    /// Does all steps of a shutdown.
    pub(crate) async fn shut_down(self) -> Result<(), Failure> {
        self.drain();
        self.stop();
        self.ended().await
    }
}
