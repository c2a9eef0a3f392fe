//! The mutants: the mistakes that lock services are known for, and what has to catch each of them.

use std::pin::Pin;

use dlock_core::Certainty;
use dlock_models::{
    check::{EXCLUSION, ORDER, WAKES},
    late_renewal, multi, quorum, zookeeper,
};
use libtest_mimic::Failed;
use tokio::runtime::Builder;

use crate::{caught, checks, fault::Fault, toy::Toy};

/// A mistake, with each way to make it.
pub(crate) struct Mutant {
    pub(crate) name: &'static str,
    pub(crate) ways: &'static [Way],
}

/// Where the mistake is made, and what has to catch it.
pub(crate) enum Way {
    /// In a store. A case of the suite has to fail.
    Kit(Fault),
    /// In a store. This check has to fail on it, and to pass on a correct store.
    Check { name: &'static str, check: Check, correct: fn() -> Toy, wrong: fn() -> Toy },
    /// In the model of a protocol, from which a rule is removed.
    Model { name: &'static str, without: fn() -> String },
}

type Check = fn(Toy) -> Pin<Box<dyn Future<Output = Result<(), Failed>>>>;

/// In the order of their numbers, which begin at 1.
pub(crate) const ALL: [Mutant; 26] = {
    use Fault::*;
    use Way::{Check, Kit, Model};
    [
        Mutant { name: "release_without_owner_check", ways: &[Kit(ReleasesWithoutOwnerCheck)] },
        Mutant { name: "release_by_name_after_a_new_grant", ways: &[Kit(ReleasesTheNextHolder)] },
        Mutant { name: "no_check_after_the_wake_up", ways: &[Kit(TrustsTheWakeUp)] },
        Mutant { name: "deadline_from_the_reply", ways: &[Kit(LeaseFromTheReply)] },
        Mutant {
            name: "no_margin",
            ways: &[Check {
                name: "the_deadline_passes_before_the_lease_of_a_fast_clock",
                check: |toy| {
                    Box::pin(checks::the_deadline_passes_before_the_lease_of_a_fast_clock(toy))
                },
                correct: || Toy::new(Fault::None),
                wrong: || Toy::new(Fault::IgnoresTheMargin),
            }],
        },
        Mutant { name: "renewal_without_owner_check", ways: &[Kit(RenewsTheNextHolder)] },
        Mutant {
            name: "late_renewal_shortens_the_lease",
            ways: &[
                Kit(LastRenewalToArriveWins),
                Kit(ResendShortensTheLease),
                Kit(RenewsAfterTheLastRenewal),
                Model {
                    name: "late_renewal",
                    without: || {
                        late_renewal::without(late_renewal::RULES[0].0, late_renewal::RULES[0].1)
                    },
                },
            ],
        },
        Mutant { name: "failed_renewal_ignored", ways: &[Kit(RenewalAlwaysConfirmed)] },
        Mutant { name: "counted_tokens_after_data_loss", ways: &[Kit(CountsTokens)] },
        Mutant { name: "random_tokens", ways: &[Kit(RandomTokens)] },
        Mutant {
            name: "quorum_without_write_back",
            ways: &[Model {
                name: "quorum",
                without: || quorum::without(quorum::Rule::WriteBack, ORDER),
            }],
        },
        Mutant {
            name: "quorum_of_half",
            ways: &[Model {
                name: "quorum",
                without: || quorum::without(quorum::Rule::Majority, EXCLUSION),
            }],
        },
        Mutant { name: "sequence_number_as_token", ways: &[Kit(ResetsTokens)] },
        Mutant {
            name: "claim_of_an_ended_session_is_adopted",
            ways: &[
                Kit(AdoptsTheOldClaim),
                Check {
                    name: "the_deadline_of_a_found_claim_passes_before_the_lease",
                    check: |toy| {
                        Box::pin(checks::the_deadline_of_a_found_claim_passes_before_the_lease(toy))
                    },
                    correct: || Toy::new(Fault::None),
                    wrong: || Toy::new(Fault::AdoptsTheOldClaim),
                },
                Model {
                    name: "zookeeper",
                    without: || zookeeper::without(zookeeper::Rule::OwnerCheck, EXCLUSION),
                },
            ],
        },
        Mutant {
            name: "watch_without_a_second_read",
            ways: &[
                Kit(LosesWakeUps),
                Model {
                    name: "zookeeper",
                    without: || zookeeper::without(zookeeper::Rule::Recheck, WAKES),
                },
            ],
        },
        Mutant { name: "no_notification_and_no_poll", ways: &[Kit(NeverNotifies)] },
        Mutant { name: "readers_pass_a_waiting_writer", ways: &[Kit(ReadersPassWriters)] },
        Mutant { name: "reentered_by_another_task", ways: &[Kit(ReentersByClient)] },
        Mutant { name: "dropped_waiter_stays", ways: &[Kit(CancelledWaiterStays)] },
        Mutant {
            name: "unknown_outcome_taken_for_a_refusal",
            ways: &[Check {
                name: "no_claim_remains_after_a_lost_answer",
                check: |toy| Box::pin(checks::no_claim_remains_after_a_lost_answer(toy)),
                correct: || Toy::losing(Certainty::Unknown),
                wrong: || Toy::losing(Certainty::NotApplied),
            }],
        },
        Mutant { name: "time_of_the_transaction_start", ways: &[Kit(LeaseFromTheTransaction)] },
        Mutant { name: "dead_waiters_stay", ways: &[Kit(KeepsDeadWaiters)] },
        Mutant { name: "two_grants_with_one_token", ways: &[Kit(RepeatsTokens)] },
        Mutant {
            name: "deadline_from_a_late_answer",
            ways: &[Kit(LeaseFromTheAnswer), Kit(LeaseFromTheWakeUp)],
        },
        Mutant {
            name: "sets_acquired_at_once_and_one_by_one",
            ways: &[
                Kit(SomeClientsAcquireOneByOne),
                Model {
                    name: "multi",
                    without: || multi::without(multi::Rule::SameSteps, multi::NO_DEADLOCK),
                },
            ],
        },
        Mutant { name: "temporary_table_of_the_session", ways: &[Kit(TableByClient)] },
    ]
};

impl Mutant {
    /// Returns what caught the mistake, for each way to make it.
    pub(crate) fn caught(&self) -> Result<String, Failed> {
        let by: Result<Vec<String>, Failed> = self.ways.iter().map(Way::caught).collect();
        Ok(by?.join("; "))
    }

    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.ways.iter().any(|way| matches!(way, Way::Kit(other) if *other == fault))
    }
}

impl Way {
    fn caught(&self) -> Result<String, Failed> {
        match self {
            Self::Kit(fault) => caught(*fault),
            Self::Check { name, check, correct, wrong } => {
                let runtime = Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(check(correct())).map_err(|what| {
                    format!(
                        "{name} fails on a correct store: {}",
                        what.message().unwrap_or_default()
                    )
                })?;
                match runtime.block_on(check(wrong())) {
                    Err(what) => Ok(format!("{name}: {}", what.message().unwrap_or_default())),
                    Ok(()) => Err(format!("{name} passes").into()),
                }
            }
            Self::Model { name, without } => Ok(format!("the model {name}: {}", without())),
        }
    }
}
