//! The mistakes that lock services are known for, each made here on purpose, and what catches it.

use std::pin::Pin;

use dlock_core::Certainty;
use dlock_models::{
    check::{EXCLUSION, ORDER, WAKES},
    late_renewal, multi, quorum, zookeeper,
};
use libtest_mimic::Failed;
use tokio::runtime::Builder;

use crate::{caught, checks, fault::Fault, toy::Toy};

/// A mistake, and all that has to catch it.
pub(crate) struct Mutant {
    pub(crate) name: &'static str,
    pub(crate) ways: &'static [Way],
}

/// Where the mistake is made, and what is to catch it.
pub(crate) enum Way {
    /// In a store, which the cases are run on.
    Kit(Fault),
    /// In a store, which this check is run on, and a right one beside it.
    Check { name: &'static str, check: Check, right: fn() -> Toy, wrong: fn() -> Toy },
    /// In the model of a protocol, by a rule that is taken out.
    Model { name: &'static str, without: fn() -> String },
}

type Check = fn(Toy) -> Pin<Box<dyn Future<Output = Result<(), Failed>>>>;

/// In the order in which they are counted, from 1.
pub(crate) const ALL: [Mutant; 26] = {
    use Fault::*;
    use Way::{Check, Kit, Model};
    [
        Mutant { name: "release_without_owner_check", ways: &[Kit(ForgetsTheOwner)] },
        Mutant { name: "release_by_name_after_a_new_grant", ways: &[Kit(ReleasesTheNext)] },
        Mutant { name: "no_look_after_the_wait", ways: &[Kit(BelievesTheWakeUp)] },
        Mutant { name: "belief_from_the_reply", ways: &[Kit(SinceTheReply)] },
        Mutant {
            name: "no_margin",
            ways: &[Check {
                name: "the_deadline_passes_before_the_lease_of_a_fast_clock",
                check: |toy| {
                    Box::pin(checks::the_deadline_passes_before_the_lease_of_a_fast_clock(toy))
                },
                right: || Toy::new(Fault::None),
                wrong: || Toy::new(Fault::TakesTheMargin),
            }],
        },
        Mutant { name: "renewal_without_owner_check", ways: &[Kit(RenewsTheNext)] },
        Mutant {
            name: "late_renewal_shortens_the_lease",
            ways: &[
                Kit(TheLastToArriveWins),
                Kit(AResendCutsTheLease),
                Kit(RenewsAfterTheLast),
                Model {
                    name: "late_renewal",
                    without: || {
                        late_renewal::without(late_renewal::RULES[0].0, late_renewal::RULES[0].1)
                    },
                },
            ],
        },
        Mutant { name: "failed_renewal_ignored", ways: &[Kit(RenewalAlwaysKept)] },
        Mutant { name: "counted_tokens_and_lost_data", ways: &[Kit(CountsTokens)] },
        Mutant { name: "random_tokens", ways: &[Kit(DrawsTokens)] },
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
        Mutant { name: "place_in_the_directory_as_token", ways: &[Kit(ResetsTokens)] },
        Mutant {
            name: "claim_of_the_session_before_adopted",
            ways: &[
                Check {
                    name: "the_deadline_of_a_found_claim_passes_before_the_lease",
                    check: |toy| {
                        Box::pin(checks::the_deadline_of_a_found_claim_passes_before_the_lease(toy))
                    },
                    right: || Toy::new(Fault::None),
                    wrong: || Toy::new(Fault::AdoptsTheOld),
                },
                Model {
                    name: "zookeeper",
                    without: || zookeeper::without(zookeeper::Rule::OwnerCheck, EXCLUSION),
                },
            ],
        },
        Mutant {
            name: "watch_without_another_look",
            ways: &[
                Kit(LosesWakeUps),
                Model {
                    name: "zookeeper",
                    without: || zookeeper::without(zookeeper::Rule::Recheck, WAKES),
                },
            ],
        },
        Mutant { name: "no_notice_and_no_poll", ways: &[Kit(TellsNobody)] },
        Mutant { name: "readers_pass_a_waiting_writer", ways: &[Kit(ReadersPassWriters)] },
        Mutant { name: "entered_again_by_another_task", ways: &[Kit(EntersByClient)] },
        Mutant { name: "who_is_dropped_stays", ways: &[Kit(WithdrawnStays)] },
        Mutant {
            name: "unknown_taken_for_no",
            ways: &[Check {
                name: "nothing_stays_of_a_lost_answer",
                check: |toy| Box::pin(checks::nothing_stays_of_a_lost_answer(toy)),
                right: || Toy::losing(Certainty::Unknown),
                wrong: || Toy::losing(Certainty::NotApplied),
            }],
        },
        Mutant { name: "time_of_a_longer_transaction", ways: &[Kit(LeaseFromTheTransaction)] },
        Mutant { name: "dead_waiters_stay", ways: &[Kit(KeepsDeadWaiters)] },
        Mutant { name: "one_token_of_two_grants_accepted", ways: &[Kit(RepeatsTokens)] },
        Mutant {
            name: "belief_from_a_late_answer",
            ways: &[Kit(SinceTheAnswer), Kit(SinceTheWakeUp)],
        },
        Mutant {
            name: "several_at_once_and_one_by_one",
            ways: &[
                Kit(TogetherByClient),
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
    /// What each way was caught by.
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
            Self::Check { name, check, right, wrong } => {
                let runtime = Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(check(right())).map_err(|what| {
                    format!("{name} fails on a right store: {}", what.message().unwrap_or_default())
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
