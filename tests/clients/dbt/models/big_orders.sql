{{ config(materialized='view') }}
select id, customer from {{ ref('orders_so_far') }} where amount > 10
