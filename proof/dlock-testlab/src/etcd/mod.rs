//! Private etcd servers, alone and as an ensemble.
//!
//! They need `etcd` and `etcdctl` on the path, or in the directory `DLOCK_ETCD_BIN`. `etcdctl` may
//! be of another version than the server, so that directory may lack it.
//!
//! ```no_run
//! # async fn example() -> Result<(), dlock_testlab::Stop> {
//! use dlock_testlab::etcd::{EtcdServer, Options, Role};
//!
//! let server = EtcdServer::start(&Options::new()).await?;
//! assert_eq!(server.role().await?, Role::Leader);
//! server.put("/a", "1").await?;
//! assert_eq!(server.keys_under("/").await?, ["/a"]);
//! # Ok(())
//! # }
//! ```

mod ctl;
mod ensemble;
mod server;

pub use ctl::Role;
pub use ensemble::Ensemble;
pub use server::{EtcdServer, Options};
