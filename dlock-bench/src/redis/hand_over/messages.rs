//! The [ring](Ring) in the lines between parent and children:
//!
//! ```text
//! join PLACE                  -> ok           listens at a place of the ring
//! ring PLACE NEXT FROM UNTIL  -> ok NANOS...  each way of the message to this place
//! ```

use std::time::Duration;

use tokio::runtime::Runtime;

use super::ring::Ring;
use crate::{
    Failure,
    crew::{Crew, child::Skill, span},
};

/// A child's place in the ring, once it has one.
#[derive(Default)]
pub(crate) struct Messages(Option<Ring>);

impl Skill for Messages {
    fn obey(
        &mut self,
        url: &str,
        runtime: &Runtime,
        words: &[&str],
    ) -> Result<Option<String>, Failure> {
        match *words {
            ["join", place] => {
                if self.0.is_none() {
                    self.0 = Some(runtime.block_on(Ring::join(url, place))?);
                }
                Ok(Some(String::new()))
            }
            ["ring", place, next, from, until] => {
                let ring = self.0.as_mut().ok_or("ring before join")?;
                let (from, until) = (from.parse()?, until.parse()?);
                let took = runtime.block_on(ring.go(place == "0", next, from, until))?;
                Ok(Some(took.iter().map(|took| format!("{} ", took.as_nanos())).collect()))
            }
            _ => Ok(None),
        }
    }
}

/// Sends one message round for so long: how long each of its ways took.
pub(super) fn ring(crew: &mut Crew, lasts: Duration) -> Result<Vec<Duration>, Failure> {
    let size = crew.size();
    crew.ask(|place| format!("join {place}"))?;
    let (from, until) = span(lasts);
    let answers =
        crew.ask(|place| format!("ring {place} {} {from} {until}", (place + 1) % size))?;
    let took = answers.iter().flat_map(|line| line.split_whitespace());
    took.map(|nanos| Ok(Duration::from_nanos(nanos.parse()?))).collect()
}
