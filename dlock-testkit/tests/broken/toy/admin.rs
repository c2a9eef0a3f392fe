//! The verbs for operators of the toy store, with their faults.

use async_trait::async_trait;
use dlock_core::{Admin, Error, ErrorKind, FencingToken, LockName};

use super::Toy;
use crate::{fault::Fault, listing};

#[async_trait]
impl Admin for Toy {
    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockName>, Error> {
        match self.modest {
            true => Err(Error::new(ErrorKind::Unsupported, "the modest do not list: inspect")),
            false => listing::list(self.fault, &mut self.names.lock(), prefix, limit),
        }
    }

    async fn raise_tokens(&self, name: &LockName, above: FencingToken) -> Result<(), Error> {
        if self.modest {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "tokens of the modest do not rise: wait",
            ));
        }
        let fault = self.fault;
        self.with(name, |lock, _| match fault {
            Fault::IgnoresTheFloor => {}
            Fault::FloorEndsWithABlock => lock.last = lock.last.max(above.get()),
            _ => lock.last = (lock.last + 1).max(above.get()),
        });
        Ok(())
    }
}
