//! The plots of a round.

use std::{error::Error, ops::Range, path::Path, time::Duration};

use dlock_core::Instant;
use dlock_testkit::Stop;
use plotters::{
    coord::Shift,
    element::{Circle, PathElement},
    prelude::{
        ChartBuilder, DrawingArea, IntoDrawingArea, IntoLogRange, LineSeries, SVGBackend,
        SeriesLabelPosition,
    },
    style::{BLACK, BLUE, Color, Palette, Palette99, RED, WHITE},
};

use super::round::Round;
use crate::fault::{Effect, Fault};

type Drawn = Result<(), Box<dyn Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const SIZE: (u32, u32) = (1100, 420);
const SMALL: (&str, u32) = ("sans-serif", 13);

/// Draws `NAME-grants.svg`, `NAME-hand-off.svg` and `NAME-lateness.svg` into this directory.
///
/// # Errors
/// If a file can't be written.
pub(super) fn draw(round: &Round, directory: &Path, name: &str) -> Result<(), Stop> {
    let Some(report) = &round.report else { return Ok(()) };
    let since = |times: &[(Instant, Duration)]| -> Vec<(f64, f64)> {
        let point = |(at, time): &(Instant, Duration)| {
            (at.since(round.began).as_secs_f64(), time.as_secs_f64() * 1e3)
        };
        times.iter().map(point).collect()
    };
    let drawn = |kind: &str, paint: &dyn Fn(&Area<'_>) -> Drawn| {
        let file = directory.join(format!("{name}-{kind}.svg"));
        let area = SVGBackend::new(&file, SIZE).into_drawing_area();
        paint(&area).map_err(|error| Stop::failed(format!("{}: {error}", file.display())))
    };
    let numbers = report.grants_per_second();
    let rates: Vec<(f64, f64)> =
        (0_u32..).zip(&numbers).map(|(at, &n)| (f64::from(at), count(n))).collect();
    drawn("grants", &|area| {
        grants(area, &format!("{name}: grants a second, and the injected faults"), &rates, round)
    })?;
    let hand_offs = since(&report.hand_offs());
    drawn("hand-off", &|area| {
        points(area, &format!("{name}: from the release to the next holder"), &hand_offs)
    })?;
    let lateness = since(report.lateness().notified());
    drawn("lateness", &|area| {
        points(area, &format!("{name}: from the deadline to lost()"), &lateness)
    })
}

fn grants(area: &Area<'_>, title: &str, rates: &[(f64, f64)], round: &Round) -> Drawn {
    area.fill(&WHITE)?;
    let top = highest(rates) * 1.25;
    let end = rates.last().map_or(1.0, |(at, _)| *at);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 17))
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(52)
        .right_y_label_area_size(4)
        .build_cartesian_2d(0.0..end, 0.0..top)?;
    chart.configure_mesh().light_line_style(WHITE).x_desc("seconds").draw()?;
    chart.draw_series(LineSeries::new(rates.iter().copied(), BLUE.stroke_width(2)))?;
    let mut kinds: Vec<Fault> = round.injections.iter().map(|injection| injection.fault).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for (number, kind) in kinds.iter().enumerate() {
        let colour = Palette99::pick(number).mix(0.9);
        let done = round
            .injections
            .iter()
            .filter(|injection| injection.fault == *kind && injection.effect == Effect::Proven);
        // Each kind has its own height, so that the kinds differ even without colours.
        let height = top * (0.99 - 0.012 * f64::from(u32::try_from(number)?));
        let lines = done.map(|injection| {
            let at = injection.at.since(round.began).as_secs_f64();
            let until = injection.until.since(round.began).as_secs_f64().max(at + 0.15);
            PathElement::new(vec![(at, height), (until, height)], colour.stroke_width(4))
        });
        let stroke = colour.stroke_width(4);
        chart
            .draw_series(lines)?
            .label(kind.to_string())
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 14, y)], stroke));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .label_font(SMALL)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    area.present()?;
    Ok(())
}

fn points(area: &Area<'_>, title: &str, points: &[(f64, f64)]) -> Drawn {
    area.fill(&WHITE)?;
    let end = points.iter().map(|(at, _)| *at).fold(1.0, f64::max);
    let heights: Range<f64> = 0.01..(highest(points) * 2.0);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 17))
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..end, heights.log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc("seconds")
        .y_desc("milliseconds")
        .draw()?;
    let dots = points.iter().map(|&(at, ms)| Circle::new((at, ms.max(0.01)), 2, RED.mix(0.5)));
    chart.draw_series(dots)?;
    area.present()?;
    Ok(())
}

fn highest(points: &[(f64, f64)]) -> f64 {
    points.iter().map(|(_, y)| *y).fold(1.0, f64::max)
}

fn count(number: u64) -> f64 {
    u32::try_from(number).map_or(f64::MAX, f64::from)
}
