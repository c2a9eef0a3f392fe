//! A web service that sells items under a lock, in axum. It shows where `Locks` lives, how long a
//! request waits, which status each error gets, the probes, and the shutdown. `app.rs` and
//! `refusal.rs` are the service. The rest simulates its clients and its load balancer, and checks
//! the output.
//!
//! `cargo run -p dlock-examples-lab --example web_service`, on another store with `-- --url URL`

mod app;
#[path = "../../../given/mod.rs"]
mod given;
mod refusal;
mod simulation;
mod stock;

use std::{error::Error, fmt::Debug, future::pending, sync::Arc, time::Duration};

use axum::response::IntoResponse as _;
use dlock::{ErrorKind, Locks, error::ConfigIssue};
use futures_util::future::try_join_all;

use crate::{
    app::Settings,
    refusal::Refusal,
    simulation::{Instance, Link},
    stock::Stock,
};

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let shop = Shop::open(&given::url("memory:")?).await?;
    shop.last_item().await?;
    shop.busy().await?;
    shop.store_unreachable().await?;
    shop.lost().await?;
    shop.client_disconnects().await?;
    shop.request_takes_too_long().await?;
    shop.shutdown().await?;
    shop.other_errors()?;
    shop.close().await
}

/// The store of the locks, and the stock.
struct Shop {
    /// The locks of another program that uses the store.
    other: Locks,
    stock: Arc<Stock>,
}

impl Shop {
    async fn open(url: &str) -> Result<Self, Failure> {
        let other = dlock::connect(url).await?;
        let stock = Arc::new(Stock::new((42..=48).map(|item| (item, 1))));
        Ok(Self { other, stock })
    }

    async fn start(&self, settings: Settings) -> Result<Instance, Failure> {
        // Each instance is a separate client, as a separate process would be.
        let locks = Locks::new(Arc::clone(self.other.backend()))?;
        Instance::start(&locks, &self.stock, settings).await
    }

    async fn last_item(&self) -> Result<(), Failure> {
        println!("1. Eight clients of two instances want the last item");
        let (web_1, web_2) =
            (self.start(Settings::default()).await?, self.start(Settings::default()).await?);
        let instances = [web_1.address, web_2.address].into_iter().cycle().take(8);
        let replies = instances.map(|server| simulation::send_patiently(server, "POST /buy/42"));
        let mut statuses: Vec<_> =
            try_join_all(replies).await?.into_iter().map(|reply| reply.status).collect();
        statuses.sort_unstable();
        ensure(statuses == [200, 410, 410, 410, 410, 410, 410, 410], &statuses)?;
        println!("   one bought it (200), seven were refused: sold out (410)");
        web_1.shut_down().await?;
        web_2.shut_down().await
    }

    async fn busy(&self) -> Result<(), Failure> {
        println!("2. Another program holds the lock");
        let wait = Duration::from_millis(300);
        let web = self.start(Settings { wait, ..Settings::default() }).await?;
        let held = self.other.mutex("inventory/43")?.lock().await?;
        let busy = web.send("POST /buy/43").await?;
        ensure(busy.status == 409 && busy.retry_after.is_some(), &busy)?;
        held.release().await?;
        let free = simulation::send_patiently(web.address, "POST /buy/43").await?;
        ensure(free.status == 200, &free)?;
        println!("   409 after a wait of {wait:?}, and 200 once the lock is released");
        web.shut_down().await
    }

    async fn store_unreachable(&self) -> Result<(), Failure> {
        println!("3. One of two instances can't reach the store");
        let link = Link::new(Arc::clone(self.other.backend()));
        let cut_off = Locks::new(link.clone())?;
        let cut_off = Instance::start(&cut_off, &self.stock, Settings::default()).await?;
        let web = self.start(Settings::default()).await?;
        link.cut();
        let refused = cut_off.send("POST /buy/44").await?;
        ensure(refused.status == 503 && refused.retry_after.is_some(), &refused)?;
        let (ready, live) = (cut_off.send("GET /ready").await?, cut_off.send("GET /live").await?);
        ensure(ready.status == 503 && live.status == 200, &(&ready, &live))?;
        println!("   POST /buy 503, GET /ready 503, GET /live 200");
        let (ready, sold) = (web.send("GET /ready").await?, web.send("POST /buy/44").await?);
        ensure(ready.status == 200 && sold.status == 200, &(&ready, &sold))?;
        link.restore();
        let again = cut_off.send("GET /ready").await?;
        ensure(again.status == 200, &again)?;
        println!("   the other one is ready and sells; after the repair both are ready");
        cut_off.shut_down().await?;
        web.shut_down().await
    }

    async fn lost(&self) -> Result<(), Failure> {
        println!("4. The lock is lost during the payment");
        // The holder detects the loss at its next renewal, after a third of the lease.
        let lease = Duration::from_secs(2);
        let web = self.start(Settings { lease, ..Settings::default() }).await?;
        self.stock.payments.stall();
        let revoke = async {
            self.stock.payments.until_running(1).await;
            self.other.force_release("inventory/45").await?;
            pending::<Result<(), Failure>>().await
        };
        let reply = tokio::select! {
            reply = web.send("POST /buy/45") => reply?,
            failed = revoke => return failed,
        };
        ensure(reply.status == 503 && reply.retry_after.is_some(), &reply)?;
        self.stock.payments.until_running(0).await;
        self.stock.payments.resume();
        self.left(45, 1).await?;
        println!("   503: the sale was dropped, and the item is still there");
        web.shut_down().await
    }

    async fn client_disconnects(&self) -> Result<(), Failure> {
        println!("5. The client disconnects during the payment");
        // So long that only the disconnect can end the request.
        let request_timeout = Duration::from_secs(3600);
        let web = self.start(Settings { request_timeout, ..Settings::default() }).await?;
        self.stock.payments.stall();
        let client = simulation::start(web.address, "POST /buy/46").await?;
        self.stock.payments.until_running(1).await;
        drop(client);
        self.stock.payments.until_running(0).await;
        self.stock.payments.resume();
        self.free(46).await?;
        self.left(46, 1).await?;
        println!("   the sale was dropped, the lock is free, and the item is still there");
        web.shut_down().await
    }

    async fn request_takes_too_long(&self) -> Result<(), Failure> {
        println!("6. The payment takes longer than the request timeout");
        let request_timeout = Duration::from_secs(1);
        let web = self.start(Settings { request_timeout, ..Settings::default() }).await?;
        self.stock.payments.stall();
        let late = web.send("POST /buy/47").await?;
        ensure(late.status == 504, &late)?;
        self.stock.payments.until_running(0).await;
        self.stock.payments.resume();
        self.free(47).await?;
        self.left(47, 1).await?;
        println!("   504 after {request_timeout:?}, and the lock is free");
        web.shut_down().await
    }

    async fn shutdown(&self) -> Result<(), Failure> {
        println!("7. The instance is shut down during a payment");
        let web = self.start(Settings::default()).await?;
        let address = web.address;
        self.stock.payments.stall();
        let (reply, ended) = tokio::join!(web.send("POST /buy/48"), async {
            self.stock.payments.until_running(1).await;
            web.drain();
            let (ready, live) = (web.send("GET /ready").await?, web.send("GET /live").await?);
            ensure(ready.status == 503 && live.status == 200, &(&ready, &live))?;
            web.stop();
            self.stock.payments.resume();
            Ok::<_, Failure>(())
        });
        ended?;
        let reply = reply?;
        ensure(reply.status == 200, &reply)?;
        web.ended().await?;
        let refused = simulation::send(address, "GET /live").await;
        ensure(refused.is_err(), &refused)?;
        println!("   GET /ready 503, the running request 200, new connections are refused");
        self.free(48).await
    }

    /// Checks the status for the kinds of errors that no request above has returned.
    fn other_errors(&self) -> Result<(), Failure> {
        for (kind, status) in [
            (ErrorKind::Unavailable, 503),
            (ErrorKind::NotHeld, 503),
            (ErrorKind::Config(ConfigIssue::ShutDown), 503),
            (ErrorKind::Config(ConfigIssue::Name), 500),
            (ErrorKind::Unsupported, 500),
            (ErrorKind::Protocol, 500),
        ] {
            let error = dlock::Error::new(kind, "made up by the example");
            let response = Refusal::from(error).into_response();
            ensure(response.status() == status, &(kind, response.status()))?;
        }
        Ok(())
    }

    async fn close(self) -> Result<(), Failure> {
        for item in 42..=48 {
            self.free(item).await?;
        }
        println!("All locks are free.");
        Ok(self.other.shutdown(Duration::from_secs(5)).await?)
    }

    /// Checks that the lock of this item is free, or will be when its release reaches the store.
    async fn free(&self, item: u32) -> Result<(), Failure> {
        let guard = self.other.mutex(format!("inventory/{item}"))?.lock().await?;
        guard.release().await?;
        let state = self.other.inspect(format!("inventory/{item}")).await?;
        ensure(state.is_free(), &state)
    }

    async fn left(&self, item: u32, expected: u32) -> Result<(), Failure> {
        let left = self.stock.left(item).await.map_err(|refusal| format!("{refusal:?}"))?;
        ensure(left == expected, &left)
    }
}

/// Fails if a statement of this example does not hold.
fn ensure(holds: bool, found: &dyn Debug) -> Result<(), Failure> {
    match holds {
        true => Ok(()),
        false => Err(format!("the outcome differs from what the example says: {found:?}").into()),
    }
}
