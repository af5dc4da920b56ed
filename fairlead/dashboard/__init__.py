"""The dashboard: web pages that read the stores, and actions of operators. It needs no fleet.

Read in this order:
    access            who may read, who may act, which requests are refused; pure
    middleware        applies it before every request; adds headers to every answer
    template_filters  values as the pages show them
    timeline          the steps of a workflow as bars; pure
    pages             what each page shows
    actions           what each button does, and its confirmation question
    site              routes; updates of open pages; errors as pages
    server            the socket and the server
    templates/, static/  the pages; uPlot draws the charts, its licence lies beside it

The server renders the pages, and they work without a script. A small script updates open pages and draws the charts.
The templates' engine escapes every value; the browser may run only the scripts of static/.
May import: queries, and what it needs of fairlead and zones. Imported by: cli, when its command is run.
"""
