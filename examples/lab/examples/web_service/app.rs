//! The service itself: where `Locks` lives, the handlers, the probes and the shutdown.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Path, Request, State},
    http::StatusCode,
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use dlock::{Error, LockExt, LockOptions, Locks};
use tokio::{
    net::TcpListener,
    sync::watch,
    time::{sleep, timeout},
};

use crate::{Failure, refusal::Refusal, stock::Stock};

/// The time for which a readiness probe waits for the store: less than the probe's own timeout.
const HEALTH: Duration = Duration::from_secs(1);
/// The time that running requests have to finish once the shutdown has begun.
const GRACE: Duration = Duration::from_secs(10);
/// The time for which the shutdown waits until the last releases have reached the store.
const RELEASES: Duration = Duration::from_secs(5);

/// Times that a service reads from its configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// The time for which the store keeps the lock of an instance that died.
    pub(crate) lease: Duration,
    /// The time for which a request waits for a busy lock.
    pub(crate) wait: Duration,
    /// The time that a request may take: longer than the wait and the work together.
    pub(crate) request_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            wait: Duration::from_millis(500),
            request_timeout: Duration::from_secs(10),
        }
    }
}

/// The phase of an instance. It only moves forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Serving,
    /// The instance still serves, but is not ready, so the load balancer sends requests to others.
    Draining,
    /// The instance accepts no connections and finishes the running requests.
    Stopping,
}

/// The state that all requests share. A clone is cheap: it shares the connection to the store.
#[derive(Clone, Debug)]
pub(crate) struct App {
    locks: Locks,
    stock: Arc<Stock>,
    request_timeout: Duration,
    phase: watch::Receiver<Phase>,
}

impl App {
    /// Returns the state of one process, with its one `Locks`.
    pub(crate) fn new(
        locks: &Locks,
        stock: Arc<Stock>,
        settings: Settings,
        phase: watch::Receiver<Phase>,
    ) -> Result<Self, Error> {
        // Set here, the bound applies to every lock that a handler takes.
        let options = LockOptions::new().with_lease(settings.lease).with_wait(settings.wait);
        let locks = locks.with_options(options)?;
        Ok(Self { locks, stock, request_timeout: settings.request_timeout, phase })
    }

    fn router(self) -> Router {
        Router::new()
            .route("/buy/{item}", post(buy))
            .route_layer(middleware::from_fn_with_state(self.clone(), in_time))
            .route("/ready", get(ready))
            .route("/live", get(live))
            .with_state(self)
    }

    /// Waits until the instance has reached this phase, or its owner was dropped.
    async fn reached(mut self, phase: Phase) {
        let _ = self.phase.wait_for(|now| *now >= phase).await;
    }
}

/// Sells one piece of an item.
async fn buy(State(app): State<App>, Path(item): Path<u32>) -> Result<String, Refusal> {
    let lock = app.locks.mutex(format!("inventory/{item}"))?;
    // Waits as long as the options say, drops the sale if the lock is lost, and releases the lock.
    let left = lock.with(|token| app.stock.sell(item, token)).await??;
    Ok(format!("sold, {left} left\n"))
}

/// Bounds the time of a request. Past it, the future of the handler is dropped, and with it a guard
/// that it holds or a claim that waits.
async fn in_time(State(app): State<App>, request: Request, next: Next) -> Response {
    match timeout(app.request_timeout, next.run(request)).await {
        Ok(response) => response,
        Err(_) => (StatusCode::GATEWAY_TIMEOUT, "the request took too long\n").into_response(),
    }
}

/// Whether this instance can sell. No request without a lock is useful here, so the store counts.
async fn ready(State(app): State<App>) -> Response {
    if *app.phase.borrow() > Phase::Serving {
        return (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n").into_response();
    }
    match app.locks.health(HEALTH).await.latency {
        Ok(_) => "ready\n".into_response(),
        Err(error) => {
            eprintln!("not ready: {error}");
            let text = "the lock store does not answer\n";
            (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
        }
    }
}

/// Whether the runtime answers. It does not ask the store: a restart does not repair the store, and
/// loses the locks of this instance.
async fn live() -> &'static str {
    "alive\n"
}

/// Serves until the phase is `Stopping`, and then ends in order.
pub(crate) async fn serve(listener: TcpListener, app: App) -> Result<(), Failure> {
    let server = axum::serve(listener, app.clone().router())
        .with_graceful_shutdown(app.clone().reached(Phase::Stopping));
    let overdue = async {
        app.clone().reached(Phase::Stopping).await;
        sleep(GRACE).await;
    };
    tokio::select! {
        served = server.into_future() => served?,
        () = overdue => eprintln!("some requests did not finish in time"),
    }
    // Refuses new locks, and waits until every guard is gone and every release has been sent.
    Ok(app.locks.shutdown(RELEASES).await?)
}
