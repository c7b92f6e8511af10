"""Shows at the end the figures that tests of the deployment have noted (`record_property("figure", text)`)."""


def pytest_terminal_summary(terminalreporter):
    figures = [
        (report.nodeid.rpartition("::")[2], text)
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, text in getattr(report, "user_properties", ())
        if name == "figure" and report.when == "call"
    ]
    if figures:
        terminalreporter.section("figures")
        for name, text in sorted(figures):
            terminalreporter.line(f"{name}: {text}")
