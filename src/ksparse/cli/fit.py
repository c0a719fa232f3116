"""``ksparse fit`` and ``ksparse path``: models of a file."""

from __future__ import annotations

from typing import Annotated

from . import options as opt
from .session import check_outputs, json_text, need_packages, say, session, show

PICTURES = (".svg", ".png", ".pdf")


@opt.with_fit_options
def fit(
    data: opt.Data,
    options: opt.FitOptions,
    k: Annotated[
        float | None,
        opt.of_model(
            "Largest number of features, or a share of the columns if below 1; 10 by default.", "NUMBER", "-k"
        ),
    ] = None,
    cv: Annotated[int | None, opt.of_model("Choose k by cross-validation.", "FOLDS")] = None,
    ks: Annotated[
        str | None, opt.of_model("With --cv: the k to try, such as 1:20 or 1,2,5; by default 1 to k (20).", "FROM:TO")
    ] = None,
    l2s: Annotated[
        str | None,
        opt.of_model("With --cv: the ridges to try with every k; auto: 0.1, 1, 10 and 100 times --l2.", "auto|A,B"),
    ] = None,
    out: Annotated[
        str | None, opt.of_output("Write the model (JSON), for ksparse predict and ksparse.load.", "FILE")
    ] = None,
) -> None:
    """Learn a model with at most k features from DATA, and print which features it chose.

    Without --out nothing is written. Killed or stopped with --checkpoint, the same command goes on where it was.
    """
    with session(not options.quiet) as work:
        from . import models

        report, most = options.report, 10 if k is None else k
        files = check_outputs([data], out=out, report=report, checkpoint=options.checkpoint)
        models.check_options(options, most)
        tried, ridges = opt.counts(ks, "--ks"), opt.ridges(l2s)
        for option, given in (("--ks", tried), ("--l2s", ridges)):
            if given is not None and cv is None:
                raise ValueError(f"{option} is for --cv, which chooses among them; add --cv 5")
        if ridges == "auto" and opt.ridge(options.l2) == 0.0:
            raise ValueError("--l2s auto tries multiples of --l2, which is 0; give numbers such as --l2s 0.01,0.1")
        identity = options.identity(data, k=most, cv=cv, ks=tried, **({} if ridges is None else {"l2s": ridges}))
        with work.progress():
            rows = models.read(data, options, work)
            if cv is not None and tried is None and k is not None:
                tried = models.tried_up_to(k, rows)
            estimator = models.make_estimator(options, most, rows, work)
            with models.checkpointed(files.get("checkpoint"), identity, work):
                chosen = path = held_out = None
                if cv is None:
                    work.begin(f"fit, k = {estimator.k}")
                    model = estimator.fit(rows.X, rows.y, **rows.weights)
                else:
                    chosen = models.cross_validated(estimator, rows, cv, tried, work, ridges)
                    model = chosen.estimator_
                if report is not None:
                    path = models.path_around(model, rows, tried, work)
                    held_out = models.judge_held_out(model, rows, options, work)
                models.name_columns(rows, chosen, model, *(path.models if path else ()))
                work.begin("writing")
                if out is not None:
                    model.save(files["out"], encoding=rows.source.encoding, target=rows.target)
                    work.written["out"] = out
                if report is not None:
                    models.write_report(files["report"], model, rows, path, chosen, held_out, out)
                    work.written["report"] = report
        if options.as_json:
            facts = {**rows.facts(), **models.model_facts(model), "cv": models.cv_facts(chosen)}
            show(json_text({**facts, "files": work.written, **work.facts()}))
            return
        say(rows.line(model.loss))
        if chosen is not None:
            loss = -chosen.mean_score_[list(chosen.ks_).index(model.k_)]
            ridge = "" if ridges is None else f" and l2 = {model.l2_:.4g}"
            of = f"{chosen.ks_[0]} to {chosen.ks_[-1]}"
            say(f"k = {model.k_} of {of}{ridge} by cross-validation, held-out loss {loss:.6g}")
        say(f"{models.summary_text(model.summary())}\n{models.certainty(model)}")
        if work.written:
            say("written: " + ", ".join(work.written.values()))


@opt.with_fit_options
def path(
    data: opt.Data,
    options: opt.FitOptions,
    ks: Annotated[
        str, opt.of_model("The k of the models: 1:20, 5:50:5 (including the end) or 1,2,5.", "FROM:TO")
    ] = "1:20",
    cv: Annotated[int | None, opt.of_model("Add the score of a cross-validation.", "FOLDS")] = None,
    out: Annotated[str | None, opt.of_output("Write the table and all coefficients (JSON).", "FILE")] = None,
    plot: Annotated[str | None, opt.of_output("Draw the coefficients against k: .svg, .png or .pdf.", "FILE")] = None,
) -> None:
    """Fit a model for every k, with what helps to choose: loss, AIC, BIC, EBIC, and which features enter and leave."""
    with session(not options.quiet) as work:
        from .._files import whole_file
        from . import models

        report = options.report
        files = check_outputs([data], out=out, report=report, plot=plot, checkpoint=options.checkpoint)
        models.check_options(options, 1)
        if plot is not None:
            if files["plot"].suffix.lower() not in PICTURES:
                raise ValueError(f"--plot must end in {', '.join(PICTURES)}, got {plot!r}")
            need_packages("--plot", "report", "matplotlib")
        tried = opt.counts(ks, "--ks")
        identity = options.identity(data, k=1, cv=cv, ks=tried)
        with work.progress():
            rows = models.read(data, options, work)
            estimator = models.make_estimator(options, 1, rows, work)
            with models.checkpointed(files.get("checkpoint"), identity, work):
                found = models.path_around(estimator, rows, tried, work)
                chosen = None if cv is None else models.cross_validated(estimator, rows, cv, tried, work)
                best = found.best() if chosen is None else chosen.estimator_
                held_out = None if report is None else models.judge_held_out(best, rows, options, work)
                models.name_columns(rows, chosen, best, *found.models)
                facts = {**rows.facts(), "loss": estimator.loss, **models.path_facts(found, chosen)}
                work.begin("writing")
                if out is not None:
                    with whole_file(files["out"]) as file:
                        file.write_text(json_text(facts) + "\n", encoding="utf-8")
                    work.written["out"] = out
                if report is not None:
                    models.write_report(files["report"], best, rows, found, chosen, held_out, None)
                    work.written["report"] = report
                if plot is not None:
                    from .._style import as_bytes
                    from ..estimators.summary import draw_path

                    with whole_file(files["plot"]) as file:
                        file.write_bytes(as_bytes(draw_path(found), files["plot"].suffix[1:].lower()))
                    work.written["plot"] = plot
        if options.as_json:
            show(json_text({**facts, "files": work.written, **work.facts()}))
            return
        say(rows.line(estimator.loss))
        say(models.path_table(facts))
        if work.written:
            say("written: " + ", ".join(work.written.values()))
