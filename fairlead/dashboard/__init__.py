"""The dashboard: web pages from the stores' truth, and what an operator does about it. No fleet is needed to read it.

Read in this order:
    access            who may come in, from where, and who may act; pure
    middleware        that, before every request; and the headers of every answer
    template_filters  values as the pages show them
    pages             what each page shows
    actions           what each button does, what it asks first, what is written down
    site              routes; a page's changing part, sent again while somebody looks; errors as pages
    server            listening
    templates/, static/  the pages themselves; charts are drawn by uPlot, whose licence lies beside it

Pages are rendered here, and work without a script; a small script puts in what has changed, and draws the charts. Every
value is escaped, by the templates' engine; the browser is told to run nothing but what lies in static/.
May import: queries, and what it needs of fairlead and zones. Imported by: cli, once its command is typed.
"""
